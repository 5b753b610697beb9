"""The progress of a deploy on a terminal: one line that is drawn again, with what must stay above it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kdops.cli.output import say
from kdops.deploy.progress import PHASES, Display, Lines, Now
from kdops.text import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


@contextmanager
def display() -> Iterator[Display]:
    """Yield a bar while stderr is a terminal that can redraw a line, else plain lines."""
    if not sys.stderr.isatty():
        yield Lines(say)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    if console.is_dumb_terminal:
        yield Lines(say)
        return
    bar = Bar(console)
    with Live(console=console, get_renderable=bar.draw, transient=True, refresh_per_second=4):
        yield bar


class Bar:
    """Shows the phases, the present one highlighted, with the engine's own, the time and what is left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._begun = time.monotonic()
        self._now, self._at = Now("lock", "lock"), self._begun

    def note(self, text: str) -> None:
        self._console.print(printable(text), markup=False, soft_wrap=True)

    def show(self, now: Now) -> None:
        self._now, self._at = now, time.monotonic()

    def draw(self) -> Text:
        time_now = time.monotonic()
        return line(self._now, time_now - self._begun, time_now - self._at)


def line(now: Now, elapsed: float, since: float) -> Text:
    """Return the line. elapsed: seconds since the deploy began; since: seconds since `now` was said."""
    from rich.text import Text

    text = Text(f"{elapsed:4.0f} s{_left(now, since)}  ", no_wrap=True, overflow="ellipsis")
    detail = printable(now.engine.removeprefix("phase=")) or (now.word if now.word != now.phase else "")
    phases = PHASES if now.phase in PHASES else (now.phase,)
    passed = phases.index(now.phase)
    for number, phase in enumerate(phases):
        text.append(" · " if number else "", style="dim")
        style = "green" if number < passed else "dim" if number > passed else "bold reverse"
        text.append(phase, style=style)
        if number == passed and detail:
            text.append(f" {detail}")
    return text


def _left(now: Now, since: float) -> str:
    if now.usual is None or now.phase in ("smoke test", "commit"):
        return ""
    loaded = now.seconds + since if now.engine else 0.0
    left = now.usual - loaded
    return f", about {left:.0f} s left" if left >= 1 else ", longer than usual"
