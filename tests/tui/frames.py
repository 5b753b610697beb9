"""A screen as a text file that a person can read and a diff can show: characters, then styles as runs."""

from __future__ import annotations

import os
from pathlib import Path

from rich.style import Style

from kdops.tui.app import Dashboard

FOLDER = Path(__file__).parent / "frames"
WRITE = "KDOPS_WRITE_FRAMES"


def frame(app: Dashboard) -> str:
    """Return the screen's lines, then for each its runs (name of a style, cells), then the styles."""
    names: dict[str, str] = {}
    texts, runs = [], []
    for strip in app.screen._compositor.render_strips():
        texts.append("".join(segment.text for segment in strip).rstrip())
        line: list[tuple[str, int]] = []
        for segment in strip:
            name = names.setdefault(_style(segment.style), _name(len(names)))
            cells = segment.cell_length
            if line and line[-1][0] == name:
                line[-1] = (name, line[-1][1] + cells)
            else:
                line.append((name, cells))
        runs.append(" ".join(f"{name}{cells}" for name, cells in line))
    legend = [f"{name} = {style}" for style, name in names.items()]
    return "\n".join([*texts, "== styles", *_folded(runs), "== names", *legend]) + "\n"


def check(app: Dashboard, name: str) -> None:
    """Compare the screen with the file of that name; with $KDOPS_WRITE_FRAMES set, write it instead."""
    path = FOLDER / f"{name}.txt"
    now = frame(app)
    if os.environ.get(WRITE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(now)
    assert path.exists(), f"no frame {path.name}: look at the screen, then write it with {WRITE}=1"
    assert now.splitlines() == path.read_text().splitlines(), f"{path.name} differs; {WRITE}=1 writes it anew"


def _style(style: Style | None) -> str:
    if style is None:
        return "plain"
    words = [word for word in ("bold", "italic", "underline", "reverse", "dim") if getattr(style, word)]
    colour = style.color.name if style.color else "default"
    ground = style.bgcolor.name if style.bgcolor else "default"
    return " ".join([*words, colour, "on", ground])


def _name(number: int) -> str:
    return chr(97 + number) if number < 26 else f"{chr(97 + number // 26 - 1)}{chr(97 + number % 26)}"


def _folded(lines: list[str]) -> list[str]:
    """Write a line that repeats once, with how often."""
    found: list[tuple[str, int]] = []
    for line in lines:
        if found and found[-1][0] == line:
            found[-1] = (line, found[-1][1] + 1)
        else:
            found.append((line, 1))
    return [line if count == 1 else f"{line}  ({count} lines)" for line, count in found]
