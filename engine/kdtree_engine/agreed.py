"""One width for all ranks of a tensor-parallel group, whatever their clocks say.

A policy goes by commit lengths, which every rank counts alike, and by step times, which each would measure
for itself. So all take the times of the first rank: one small exchange in EVERY steps, sooner while widths
are tried, and nothing in between that could differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kdtree_engine.policy import CALIBRATION_STEPS, Choice, Policy, Reason

EVERY = 32
Exchange = Callable[[Sequence[float]], Sequence[float]]


class AgreedPolicy(Policy):
    """A Policy that chooses the same on every rank, if all are asked and told about the same steps."""

    def __init__(self, widths: Sequence[int], block: int, exchange: Exchange) -> None:
        """exchange: gives the first rank's numbers for one's own; all ranks call it after the same step."""
        super().__init__(widths, block)
        self._exchange = exchange
        self._held: list[tuple[Choice, float]] = []

    def timed(self, choice: Choice, seconds: float | None) -> None:
        """As Policy.timed, but no time counts before the next exchange."""
        self._held.append((choice, math.nan if seconds is None else seconds))
        if not self._due():
            return
        held, self._held = self._held, []
        times = self._exchange([own for _, own in held])
        for (one, _), shared in zip(held, times, strict=True):
            super().timed(one, None if math.isnan(shared) else shared)

    def _due(self) -> bool:
        """Whether enough steps are held, or what was asked for; the same on all ranks."""
        reasons = [choice.reason for choice, _ in self._held]
        answered = reasons.count(Reason.CALIBRATING) >= CALIBRATION_STEPS or Reason.PROBE in reasons
        return answered or len(reasons) >= EVERY
