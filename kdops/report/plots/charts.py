"""The plots of a report. Each says one thing; a pointer over a mark shows its number."""

from __future__ import annotations

from collections.abc import Sequence

from kdops.bench.results import GAP_QUANTILES, ArmResult, ByteFloor
from kdops.report.plots.axes import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    bar,
    colour,
    dot,
    frame,
    legend,
    line,
    scale,
    stroke,
    text,
    x_axis,
    y_axis,
)

_ROW = 26.0
_NAMES = 104.0
_MARGIN = 0.02


def ratios(rows: Sequence[tuple[str, float, float | None, float | None]], title: str) -> str:
    """Draw (name, ratio, low, high) against 1, with the band within which arms are equivalent; the first row
    is the primary endpoint.
    """
    ends = [value for _, *values in rows for value in values if value is not None]
    along = scale([*ends, 0.97, 1.03], _NAMES + 8, WIDTH - 62.0, zero=False)
    bottom = 12 + _ROW * len(rows)
    inside = bar(along(1 - _MARGIN), 4, along(1 + _MARGIN) - along(1 - _MARGIN), bottom - 4, "band")
    parts = [inside, x_axis(along, bottom, 4, "times the baseline's tokens/s", 4)]
    parts.append(line(along(1), 4, along(1), bottom, "axis"))
    for i, (name, ratio, low, high) in enumerate(rows):
        y, kind = 4 + _ROW * (i + 0.5), "strong" if i == 0 else ""
        told = f"{name}: ×{ratio:.3f}"
        if low is not None and high is not None:
            told += f", 95 % interval {low:.3f} to {high:.3f}"
            parts.append(line(along(low), y, along(high), y, "interval"))
            parts += [line(along(end), y - 5, along(end), y + 5, "interval") for end in (low, high)]
        parts.append(text(_NAMES, y + 4, name, "end", kind))
        parts.append(dot(along(ratio), y, "s1", told, 5.5 if i == 0 else 4))
        parts.append(text(WIDTH - 4, y + 4, f"×{ratio:.3f}", "end", kind))
    return frame(parts, title, bottom + BOTTOM)


def commits(series: Sequence[tuple[str, Sequence[int]]], title: str) -> str:
    """Draw how many tokens the steps of each arm committed: (name, histogram of accepted drafts)."""
    height, longest = 240.0, max(len(cells) for _, cells in series)
    shares = [[cell / (sum(cells) or 1) for cell in cells] for _, cells in series]
    up = scale([share * 100 for found in shares for share in found], height - BOTTOM, TOP)
    parts = [y_axis(up, LEFT, RIGHT, "% of steps"), legend([name for name, _ in series])]
    room = (RIGHT - LEFT) / longest
    width = min(room * 0.8 / len(series), 34.0)
    for i in range(longest):
        middle = LEFT + room * (i + 0.5)
        for arm, found in enumerate(shares):
            share = found[i] * 100 if i < len(found) else 0.0
            x = middle + width * (arm - len(series) / 2)
            told = f"{series[arm][0]}: {share:.1f} % of steps commit {i + 1}"
            parts.append(bar(x + 0.5, up(share), width - 1, up(0) - up(share), colour(arm), told))
        parts.append(text(middle, height - BOTTOM + 15, str(i + 1), "middle"))
    parts.append(line(LEFT, up(0), RIGHT, up(0), "axis"))
    parts.append(text((LEFT + RIGHT) / 2, height - 8, "tokens committed by a step", "middle", "soft"))
    return frame(parts, title, height)


def context(arms: Sequence[ArmResult], title: str) -> str:
    """Draw step time against context: each leg's points, the fitted line, the byte floor of the GPU."""
    height = 250.0
    points = [(point.prompt_tokens, point.step_time * 1e3) for arm in arms for point in arm.context]
    along = scale([float(tokens) for tokens, _ in points], LEFT, RIGHT, room=0.04)
    up = scale([seconds for _, seconds in points], height - BOTTOM, TOP)
    parts = [
        y_axis(up, LEFT, RIGHT, "step time, ms"),
        x_axis(along, height - BOTTOM, TOP, "tokens of context"),
    ]
    for i, arm in enumerate(arms):
        if arm.context_slope is not None and arm.context_base is not None:
            ends = [(arm.context_base + arm.context_slope * tokens) * 1e3 for tokens in (0.0, along.high)]
            parts.append(line(along(0), up(ends[0]), along(along.high), up(ends[1]), f"fit {stroke(i)}"))
        for point in arm.context:
            told = f"{arm.name}: {point.step_time * 1e3:.2f} ms at {point.prompt_tokens:,} tokens"
            parts.append(dot(along(point.prompt_tokens), up(point.step_time * 1e3), colour(i), told, 3.5))
    if floor := _floor(arms):
        ends = [(floor.base + floor.per_token * tokens) * 1e3 for tokens in (0.0, along.high)]
        parts.append(line(along(0), up(ends[0]), along(along.high), up(ends[1]), "floor"))
    parts.append(legend([arm.name for arm in arms]))
    return frame(parts, title, height)


def _floor(arms: Sequence[ArmResult]) -> ByteFloor | None:
    return next((arm.floor for arm in arms if arm.floor), None)


def drift(order: Sequence[str], rates: Sequence[float], names: Sequence[str], title: str) -> str:
    """Draw the geometric mean tokens/s of each leg in the order they ran."""
    height = 220.0
    along = scale([1.0, float(len(rates))], LEFT, RIGHT, zero=False)
    # At least 5 % to each side: noise must not fill the plot and look like drift.
    up = scale([0.95 * min(rates), *rates, 1.05 * max(rates)], height - BOTTOM, TOP, zero=False)
    parts = [y_axis(up, LEFT, RIGHT, "tokens/s"), legend(names)]
    for i, name in enumerate(names):
        legs = [
            (leg + 1, rate) for leg, (arm, rate) in enumerate(zip(order, rates, strict=True)) if arm == name
        ]
        places = " ".join(f"{along(leg):.1f},{up(rate):.1f}" for leg, rate in legs)
        parts.append(f'<polyline class="trace {stroke(i)}" points="{places}"/>')
        parts += [
            dot(along(leg), up(rate), colour(i), f"leg {leg}, {name}: {rate:.1f} tokens/s")
            for leg, rate in legs
        ]
    parts += [text(along(leg), height - BOTTOM + 15, str(leg), "middle") for leg in range(1, len(rates) + 1)]
    parts.append(text((LEFT + RIGHT) / 2, height - 8, "leg", "middle", "soft"))
    return frame(parts, title, height)


def gaps(arms: Sequence[ArmResult], sets: Sequence[str], title: str) -> str:
    """Draw the time between arrivals of each set and arm: 5 to 95 % thin, 25 to 75 % thick, median, 99 %."""
    rows = [
        (name, i, arm.per_set[name].gaps)
        for name in sets
        for i, arm in enumerate(arms)
        if name in arm.per_set
    ]
    rows = [row for row in rows if len(row[2]) == len(GAP_QUANTILES)]
    height = TOP + 15.0 * len(rows) + 10.0 * len(sets)
    along = scale([row[2][-1] * 1e3 for row in rows], _NAMES + 8, RIGHT, room=0.04)
    parts = [x_axis(along, height, TOP - 6, "ms between arrivals"), legend([arm.name for arm in arms])]
    y, before = TOP - 12.0, ""
    for name, arm, quantiles in rows:
        y += 25.0 if name != before else 15.0
        p5, p25, p50, p75, p95, p99 = (along(q * 1e3) for q in quantiles)
        named = ", ".join(f"{q:.0%} {v * 1e3:.1f}" for q, v in zip(GAP_QUANTILES, quantiles, strict=True))
        if name != before:
            parts.append(text(_NAMES, y + 4, name, "end"))
        parts.append(line(p5, y, p95, y, f"thin {stroke(arm)}"))
        parts.append(
            bar(p25, y - 4, max(p75 - p25, 2), 8, colour(arm), f"{arms[arm].name}, {name}: {named} ms")
        )
        parts.append(line(p50, y - 5, p50, y + 5, "median"))
        parts.append(line(p99, y - 3, p99, y + 3, f"thin {stroke(arm)}"))
        before = name
    return frame(parts, title, height + BOTTOM)
