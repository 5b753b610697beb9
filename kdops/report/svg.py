"""Small SVG plots, drawn with the page's own colours so that light, dark and print work."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT, _PAD = 620, 220, 48


def _frame(body: str, title: str, height: int = _HEIGHT) -> str:
    name = escape(title, quote=True)
    return f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{name}">{body}</svg>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def ratios(rows: Sequence[tuple[str, float, float | None, float | None]], title: str) -> str:
    """Draw (name, ratio, low, high) on one scale with a line at 1."""
    ends = [value for _, *values in rows for value in values if value is not None]
    low, high = min([*ends, 0.98]), max([*ends, 1.02])
    margin = (high - low) * 0.08
    low, high = low - margin, high + margin

    def x(value: float) -> float:
        return 190 + (value - low) / (high - low) * (_WIDTH - 260)

    height = 40 + 26 * len(rows)
    parts = [f'<line class="axis" x1="{x(1):.1f}" x2="{x(1):.1f}" y1="8" y2="{height - 24}"/>']
    parts.append(_text(x(1), height - 8, "1.0", "middle"))
    for i, (name, ratio, lower, upper) in enumerate(rows):
        y = 24 + 26 * i
        parts.append(_text(180, y + 4, name, "end"))
        if lower is not None and upper is not None:
            parts.append(f'<line class="bar" x1="{x(lower):.1f}" x2="{x(upper):.1f}" y1="{y}" y2="{y}"/>')
        parts.append(f'<circle class="dot" cx="{x(ratio):.1f}" cy="{y}" r="4"/>')
        parts.append(_text(_WIDTH - 4, y + 4, f"{ratio:.3f}", "end"))
    return _frame("".join(parts), title, height)


def histogram(counts: Sequence[int], title: str) -> str:
    """Draw commit lengths: counts[i] steps committed i + 1 tokens."""
    total, most = sum(counts) or 1, max([*counts, 1])
    width = (_WIDTH - 2 * _PAD) / max(len(counts), 1)
    parts = []
    for i, count in enumerate(counts):
        bar = count / most * (_HEIGHT - 70)
        x, y = _PAD + i * width, _HEIGHT - 30 - bar
        parts.append(
            f'<rect class="fill" x="{x + 3:.1f}" y="{y:.1f}" width="{width - 6:.1f}" height="{bar:.1f}"/>'
        )
        parts.append(_text(x + width / 2, _HEIGHT - 12, str(i + 1), "middle"))
        parts.append(_text(x + width / 2, y - 5, f"{count / total:.0%}", "middle"))
    return _frame("".join(parts), title)


def scatter(
    series: Sequence[tuple[str, Sequence[tuple[float, float]]]], title: str, units: tuple[str, str]
) -> str:
    """Draw (name, points) with both axes from zero. units: of x and y."""
    points = [point for _, found in series for point in found] or [(1.0, 1.0)]
    right, top = max(x for x, _ in points) or 1.0, max(y for _, y in points) or 1.0
    parts = [f'<line class="axis" x1="{_PAD}" x2="{_WIDTH - 20}" y1="{_HEIGHT - 30}" y2="{_HEIGHT - 30}"/>']
    for i, (name, found) in enumerate(series):
        places = [
            (_PAD + x / right * (_WIDTH - _PAD - 120), _HEIGHT - 30 - y / top * (_HEIGHT - 60))
            for x, y in found
        ]
        parts += [f'<circle class="s{i % 4}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places]
        parts.append(f'<circle class="s{i % 4}" cx="{_WIDTH - 100}" cy="{16 + 18 * i}" r="4"/>')
        parts.append(_text(_WIDTH - 90, 20 + 18 * i, name))
    parts.append(_text(_WIDTH - 20, _HEIGHT - 12, f"{right:,.0f} {units[0]}", "end"))
    parts.append(_text(4, 20, f"{top:,.1f} {units[1]}"))
    return _frame("".join(parts), title)
