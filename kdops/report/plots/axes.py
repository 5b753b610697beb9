"""What every plot is made of: a scale with round ticks, marks, text, a legend, one frame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 440
"""Of every plot in its own units: narrow, so that on a telephone its text stays readable."""
LEFT, RIGHT, TOP, BOTTOM = 52.0, 428.0, 34.0, 40.0
COLOURS = 6


@dataclass(frozen=True)
class Scale:
    """Values low to high onto places from start to end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of `value`."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Return round values between low and high, about so many."""
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


def scale(
    values: Sequence[float], start: float, end: float, *, zero: bool = True, room: float = 0.08
) -> Scale:
    """Return a scale for `values` with `room` (share) at its ends; zero: it begins at none."""
    found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = (0.0 if zero else min(found)), max(found)
    spread = (high - low) or abs(high) or 1.0
    return Scale(low if zero else low - room * spread, high + room * spread, start, end)


def number(value: float) -> str:
    """Return a tick's label, short: 4,096 becomes 4k."""
    if value and abs(value) >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:.6g}"


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    """Return one line of text, ending, centred or starting at x."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return a line of the page's class `kind`."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def dot(x: float, y: float, kind: str, words: str = "", radius: float = 4) -> str:
    """Return a dot; words: what a pointer over it shows."""
    told = f"<title>{escape(words)}</title>" if words else ""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}">{told}</circle>'


def bar(x: float, y: float, width: float, height: float, kind: str, words: str = "") -> str:
    """Return a rectangle; words: what a pointer over it shows."""
    told = f"<title>{escape(words)}</title>" if words else ""
    size = f'width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}>{told}</rect>'


def colour(index: int) -> str:
    """Return the class of a series."""
    return f"s{index % COLOURS}"


def stroke(index: int) -> str:
    """Return the class of a series' lines."""
    return f"l{index % COLOURS}"


def x_axis(along: Scale, y: float, top: float, words: str, about: int = 5) -> str:
    """Return labelled grid lines from `top` down to `y`, and the axis' name under them."""
    parts = [line(along(tick), top, along(tick), y, "grid") for tick in along.ticks(about)]
    parts += [text(along(tick), y + 15, number(tick), "middle") for tick in along.ticks(about)]
    parts.append(text((along.start + along.end) / 2, y + 32, words, "middle", "soft"))
    return "".join(parts)


def y_axis(up: Scale, left: float, right: float, words: str, about: int = 4) -> str:
    """Return labelled grid lines from left to right, and the axis' name above them."""
    parts = [line(left, up(tick), right, up(tick), "grid") for tick in up.ticks(about)]
    parts += [text(left - 6, up(tick) + 4, number(tick), "end") for tick in up.ticks(about)]
    parts.append(text(4, 12, words, "start", "soft"))
    return "".join(parts)


def legend(names: Sequence[str], y: float = 12.0) -> str:
    """Return a key to the series, right-aligned."""
    parts, x = [], RIGHT
    for i, name in reversed(list(enumerate(names))):
        short = name if len(name) <= 24 else name[:23] + "…"
        x -= 6.6 * len(short)
        parts.append(text(x, y, short))
        parts.append(dot(x - 8, y - 4, colour(i)))
        x -= 24
    return "".join(parts)


def frame(body: Sequence[str], title: str, height: float) -> str:
    """Return the whole plot."""
    name = escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{name}">{"".join(body)}</svg>'
