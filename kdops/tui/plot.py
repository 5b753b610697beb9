"""A plot of values over time in block characters, an eighth of a cell fine. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_EIGHTHS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class Plot:
    """Lines from top to bottom, and the value at the top of the scale (the bottom is `low`)."""

    lines: tuple[str, ...]
    low: float
    high: float


def plot(values: Sequence[float | None], width: int, height: int, low: float = 0.0) -> Plot | None:
    """Draw the newest values, one a column, the last at the right; None if there is no value or no room.

    A gap stays empty; a longer series is cut at the left. The scale is from `low` to the largest shown.
    """
    if width < 1 or height < 1:
        return None
    shown = list(values)[-width:]
    known = [value for value in shown if value is not None]
    if not known:
        return None
    high = max(known)
    span = high - low if high > low else 1.0
    steps = height * 8
    columns = [
        None if value is None else max(1, round(min(max(value - low, 0.0) / span, 1.0) * steps))
        for value in shown
    ]
    lines = []
    for line in range(height - 1, -1, -1):
        cells = (" " if filled is None else _EIGHTHS[min(max(filled - line * 8, 0), 8)] for filled in columns)
        lines.append("".join(cells).rjust(width))
    return Plot(tuple(lines), low, high)
