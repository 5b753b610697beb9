"""How far a measurement is, in generated tokens: what a progress bar shows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """leg of legs runs `name`, at the stage of that name (empty while it starts). done, total: tokens.

    resumed: tokens that an earlier process measured; they say nothing about how fast this one is.
    """

    leg: int
    legs: int
    name: str
    stage: str
    done: int
    total: int
    resumed: int = 0

    def left(self, elapsed: float) -> float | None:
        """Return the seconds to go, None before anything was measured. elapsed: seconds of this process."""
        here = self.done - self.resumed
        return elapsed / here * (self.total - self.done) if here > 0 else None
