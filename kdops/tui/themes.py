"""Three themes of its own (Textual's come with the palette), and the colours that levels have in a theme."""

from __future__ import annotations

from dataclasses import dataclass

from textual.color import Color
from textual.theme import Theme

from kdops.tui.alarms import Level

DARK = Theme(
    name="kdops-dark",
    primary="#5fafff",
    secondary="#87afd7",
    accent="#ffaf5f",
    foreground="#d7dae0",
    background="#101418",
    surface="#161b21",
    panel="#1e252d",
    success="#5fd787",
    warning="#ffd75f",
    error="#ff6b6b",
    dark=True,
)
LIGHT = Theme(
    name="kdops-light",
    primary="#005f9e",
    secondary="#3a5f7d",
    accent="#9a4d00",
    foreground="#1c2126",
    background="#fbfbf9",
    surface="#f1f1ee",
    panel="#e4e5e1",
    success="#0b6b32",
    warning="#8a5a00",
    error="#b3121d",
    dark=False,
)
CONTRAST = Theme(
    name="kdops-contrast",
    primary="#00ffff",
    secondary="#ffffff",
    accent="#ffff00",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1a1a1a",
    success="#00ff00",
    warning="#ffff00",
    error="#ff5f5f",
    dark=True,
)
THEMES = (DARK, LIGHT, CONTRAST)


@dataclass(frozen=True)
class Colours:
    """Rich colour names of one theme."""

    text: str
    dim: str
    ok: str
    warning: str
    critical: str
    accent: str
    primary: str
    panel: str
    background: str

    def level(self, level: Level) -> str:
        """Return the colour of a level."""
        return {"ok": self.ok, "warning": self.warning, "critical": self.critical}[level]

    def plain(self, level: Level) -> str:
        """Return the colour of a number: text while it is ok."""
        return self.text if level == "ok" else self.level(level)


def colours(theme: Theme) -> Colours:
    """Return the colours; what a theme leaves open is derived as Textual does."""
    made = theme.to_color_system().generate()

    def one(name: str) -> str:
        return Color.parse(made[name]).hex6

    text, ground = Color.parse(made["foreground"]), Color.parse(made["background"])
    return Colours(
        text=text.hex6,
        dim=ground.blend(text, 0.62).hex6,
        ok=one("success"),
        warning=one("warning"),
        critical=one("error"),
        accent=one("accent"),
        primary=one("primary"),
        panel=one("panel"),
        background=ground.hex6,
    )
