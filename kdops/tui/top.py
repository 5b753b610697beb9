"""The first line of the screen (what goes on everywhere) and the last (which keys there are). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from rich.text import Text

from kdops.tui import alarms, words
from kdops.tui.alarms import Level
from kdops.tui.columns import MARKS
from kdops.tui.keys import KEYS, Key
from kdops.tui.sample import Sample
from kdops.tui.themes import Colours

_SHOWN = {
    "slash": "/", "question_mark": "?", "left_square_bracket": "[", "right_square_bracket": "]",
    "space": "space", "escape": "esc",
}  # fmt: skip
_WIDE = 140
_LEVELS = list(MARKS)


def top_line(
    samples: Mapping[str, Sample],
    now: float,
    mode: Sequence[str],
    view: str,
    views: Sequence[str],
    colours: Colours,
    width: int,
) -> Text:
    """Return the tabs, hosts in each state, the sum of tokens/s, and the mode (read-only, replay)."""
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(" kdops ", style=f"bold {colours.primary} reverse")
    for i, name in enumerate(views):
        title = {"ab": "A/B"}.get(name, name.capitalize())
        text.append(f" {i + 1} {title} ", style=f"bold {colours.primary}" if name == view else colours.dim)
    states = ("measuring" if one.paused else one.row.state for one in samples.values())
    counted = Counter((f" {state}" if width >= _WIDE else "", _level(state)) for state in states)
    text.append(" ")
    for (state, level), count in sorted(
        counted.items(), key=lambda one: (one[0][0], _LEVELS.index(one[0][1]))
    ):
        text.append(f" {MARKS[level]} {count}{state}", style=colours.level(level))
    live = [
        one.row.tokens_per_second or 0.0 for one in samples.values() if not one.stale(now) and not one.paused
    ]
    text.append(f"  {words.number(sum(live))} tok/s", style=colours.text)
    right = Text(
        "  ".join((*mode, datetime.fromtimestamp(now).strftime("%H:%M:%S"))) + " ", style=colours.dim
    )
    room = width - text.cell_len - right.cell_len
    return text + Text(" " * room) + right if room > 0 else text


def _level(state: str) -> Level:
    return "ok" if state in ("measuring", "connecting") else alarms.state_level(state)


def hints(view: str, changed: Mapping[str, str], words_of_view: str, colours: Colours) -> Text:
    """Return the view's own keys, then those for everywhere."""
    text = Text(no_wrap=True, overflow="ellipsis")
    for key in (*(k for k in KEYS if k.view == view), *(k for k in KEYS if not k.view)):
        if key.hint:
            text.append(f" {first_key(key, changed)}", style=f"bold {colours.accent}")
            text.append(f" {key.hint} ", style=colours.dim)
    if words_of_view:
        text.append(f"  {words_of_view}", style=colours.warning)
    return text


def first_key(key: Key, changed: Mapping[str, str]) -> str:
    """Return the first key of a command as a person writes it."""
    return ", ".join(_SHOWN.get(one, one) for one in changed.get(key.name, key.keys).split(",")[:1])


def all_keys(key: Key, changed: Mapping[str, str]) -> str:
    """Return every key of a command as a person writes it."""
    return " ".join(
        _SHOWN.get(one.strip(), one.strip()) for one in changed.get(key.name, key.keys).split(",")
    )
