"""The progress of a measurement: a bar on a terminal, else the lines alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kdops.bench.progress import Progress
from kdops.cli.output import say
from kdops.text import printable

if TYPE_CHECKING:
    from rich.text import Text

_CELLS = 24


@contextmanager
def watching() -> Iterator[tuple[Callable[[str], None], Callable[[Progress], None]]]:
    """Yield (show a line that stays, show how far it is)."""
    if not sys.stderr.isatty():
        yield say, lambda _: None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    if console.is_dumb_terminal:
        yield say, lambda _: None
        return
    began, now = time.monotonic(), [Progress(0, 0, "", "", 0, 1)]

    def draw() -> Text:
        return line(now[0], time.monotonic() - began)

    def note(text: str) -> None:
        console.print(printable(text), markup=False, soft_wrap=True)

    def show(progress: Progress) -> None:
        now[0] = progress

    with Live(console=console, get_renderable=draw, transient=True, refresh_per_second=2):
        yield note, show


def line(now: Progress, elapsed: float) -> Text:
    """Return the bar. elapsed: seconds since this process began to measure."""
    from rich.text import Text

    share = now.done / now.total if now.total else 0.0
    filled = round(share * _CELLS)
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append("━" * filled, style="green").append("━" * (_CELLS - filled), style="dim")
    text.append(f" {share:4.0%}  {_clock(elapsed)}")
    left = now.left(elapsed)
    text.append("" if left is None else f", about {_clock(left)} left", style="bold")
    if now.legs:
        text.append(f"  leg {now.leg} of {now.legs}: {printable(now.name)}")
        text.append(f" · {printable(now.stage) or 'starting'}", style="dim")
    return text


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
