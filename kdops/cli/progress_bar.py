"""The progress of a deploy on a terminal: one line that is drawn again, with what must stay above it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kdops.cli.output import say
from kdops.deploy.progress import Display, Lines, Now, line
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
        from rich.text import Text

        seconds = time.monotonic()
        parts = line(self._now, seconds - self._begun, seconds - self._at)
        return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
