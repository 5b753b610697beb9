"""What a step is, the invariants that hold on every one, and the log line operators grep."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True)
class StepRecord:
    """One request's draft + verify round. accepted: drafts the target agreed with; committed: tokens that
    came out.

    depth: depth of the deepest accepted node; nodes: rows of its tree, root included.
    """

    accepted: int
    committed: int
    depth: int
    nodes: int

    def violations(self) -> tuple[str, ...]:
        """Every broken invariant, in words; empty for a sound step."""
        found = []
        if self.committed != self.accepted + 1:
            found.append(f"commit length {self.committed} is not accepted drafts {self.accepted} + 1")
        if self.depth != self.accepted:
            found.append(f"accepted depth {self.depth} is not accepted drafts {self.accepted}")
        if not 0 <= self.accepted < self.nodes:
            found.append(f"{self.accepted} accepted drafts cannot come from a tree of {self.nodes} nodes")
        return tuple(found)


@dataclass(frozen=True)
class Totals:
    """Sums over steps since the start.

    histogram[i]: steps with i accepted drafts; ranks[k]: accepted nodes that were candidate k of their
    position (0: the drafter's best); broken: steps with a violation.
    """

    steps: int = 0
    nodes: int = 0
    accepted: int = 0
    committed: int = 0
    depth: int = 0
    broken: int = 0
    histogram: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    def __sub__(self, other: Totals) -> Totals:
        names = (field.name for field in fields(self))
        return Totals(**{name: _less(getattr(self, name), getattr(other, name)) for name in names})

    def violations(self) -> tuple[str, ...]:
        """Broken invariants of the window as a whole."""
        found = []
        if self.broken:
            found.append(f"{self.broken} of {self.steps} steps broke an invariant")
        if self.committed != self.accepted + self.steps:
            found.append(f"committed {self.committed} is not accepted {self.accepted} + steps {self.steps}")
        if self.depth != self.accepted:
            found.append(f"summed depth {self.depth} is not accepted {self.accepted}")
        if sum(self.histogram) != self.steps:
            found.append(f"histogram holds {sum(self.histogram)} of {self.steps} steps")
        if sum(i * count for i, count in enumerate(self.histogram)) != self.accepted:
            found.append("histogram and accepted drafts differ")
        if self.ranks and sum(self.ranks) != self.accepted:
            found.append(f"ranks hold {sum(self.ranks)} of {self.accepted} accepted drafts")
        return tuple(found)

    def log_line(self, *, batch_size: int, budget: int) -> str:
        """The line operators grep, means over this window. budget: verify rows, root included."""
        count = max(self.steps, 1)
        return (
            f"DDTREE metrics: bs={batch_size} budget={budget} avg_actual_nodes={self.nodes / count:.2f} "
            f"avg_accepted_drafts={self.accepted / count:.2f} avg_commit_len={self.committed / count:.2f} "
            f"avg_accepted_depth={self.depth / count:.2f}"
        )


def _less(now: Any, then: Any) -> Any:
    if isinstance(now, int):
        return now - then
    return tuple(a - b for a, b in itertools.zip_longest(now, then, fillvalue=0))
