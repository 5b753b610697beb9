"""The beginning of one generation against its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kdops.diagnose.evidence import Window


@dataclass(frozen=True)
class Ends:
    """Means of a value over the first and the last quarter of the windows; begin, end: tokens in the pool."""

    first: float
    last: float
    begin: int
    end: int

    @property
    def tokens(self) -> int:
        """How many tokens were generated in between."""
        return self.end - self.begin

    @property
    def growth(self) -> float:
        """The end's mean over the beginning's."""
        return self.last / self.first


def ends(generation: Sequence[Window], value: Callable[[Window], float], least: int) -> Ends | None:
    """Return both ends, None for fewer than eight windows or `least` tokens."""
    quarter = len(generation) // 4
    if quarter < 2 or generation[-1].tokens - generation[0].tokens < least:
        return None
    return Ends(
        first=sum(map(value, generation[:quarter])) / quarter,
        last=sum(map(value, generation[-quarter:])) / quarter,
        begin=generation[0].tokens,
        end=generation[-1].tokens,
    )
