"""Tokens/s taken apart into acceptance length and step time: tokens/s = AL / step time.

Words as in `kdops.serving.acceptance`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdops.bench.results import Finding

FLATTERS = 1.05
"""How many times faster than a long generation a short burst may look before that is a finding."""
_LONG_TOKENS = 1500


@dataclass(frozen=True)
class Rate:
    """How fast one stretch of decoding was. acceptance_length: committed tokens a step."""

    acceptance_length: float
    tokens_per_second: float

    @property
    def step_time(self) -> float:
        """Seconds of one draft + verify round."""
        return self.acceptance_length / self.tokens_per_second


@dataclass(frozen=True)
class Split:
    """Ratios after / before. tokens_per_second = acceptance_length / step_time, exactly."""

    tokens_per_second: float
    acceptance_length: float
    step_time: float

    def words(self) -> str:
        """Return the split as one sentence."""
        parts = (f"AL ×{self.acceptance_length:.2f}", f"step time ×{self.step_time:.2f}")
        return f"tokens/s ×{self.tokens_per_second:.2f} = {parts[0]} ÷ {parts[1]}"


def split(before: Rate, after: Rate) -> Split:
    """Take the change from `before` to `after` apart."""
    return Split(
        after.tokens_per_second / before.tokens_per_second,
        after.acceptance_length / before.acceptance_length,
        after.step_time / before.step_time,
    )


@dataclass(frozen=True)
class ContextFit:
    """Step time against context, least squares. slope: seconds for each token; base: seconds at none."""

    slope: float
    base: float
    end_to_end: Split

    def words(self) -> str:
        """Return what the context did, apart from what the text did."""
        grows = f"step time grows {self.slope * 1e6:z.1f} ms each 1,000 tokens"
        return f"{grows}; first to last: {self.end_to_end.words()}"


def context_fit(points: Sequence[tuple[int, Rate]]) -> ContextFit:
    """Fit (prompt tokens, rate). Raises ValueError for fewer than two different contexts."""
    import numpy as np

    ordered = sorted(points, key=lambda point: point[0])
    if len({tokens for tokens, _ in ordered}) < 2:
        raise ValueError("a slope needs two different contexts")
    slope, base = np.polyfit([tokens for tokens, _ in ordered], [rate.step_time for _, rate in ordered], 1)
    return ContextFit(float(slope), float(base), split(ordered[0][1], ordered[-1][1]))


def burst_findings(short: Rate, long: Rate, long_tokens: int) -> tuple[Finding, ...]:
    """Compare a short burst with a long generation of the same text, or say that none was long enough."""
    if long_tokens < _LONG_TOKENS:
        said = f"the longest generation has {long_tokens} tokens, {_LONG_TOKENS} are needed"
        return (Finding("no long generation", said, fatal=False),)
    apart = split(long, short)
    if apart.tokens_per_second <= FLATTERS:
        return ()
    return (Finding("short burst flatters", f"short against long: {apart.words()}", fatal=False),)


def mean_log(values: Iterable[float]) -> float:
    """Return the mean of the natural logarithms. Raises ValueError for a value that is not above zero."""
    found = list(values)
    if not found or not all(math.isfinite(v) and v > 0 for v in found):
        raise ValueError("rates must be above zero")
    return math.fsum(map(math.log, found)) / len(found)
