"""Step time as a straight line in context."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdops.diagnose.evidence import Evidence, Stretch


@dataclass(frozen=True)
class Line:
    """Least squares of step time over context. slope: seconds a token; fit: R², 1 for a straight line."""

    arm: str
    slope: float
    base: float
    fit: float
    shortest: tuple[float, float]
    longest: tuple[float, float]

    @property
    def growth(self) -> float:
        """Step time at the longest context over that at the shortest."""
        return self.longest[1] / self.shortest[1]

    def words(self) -> str:
        """Return what was measured as one sentence."""
        (a, at_a), (b, at_b) = self.shortest, self.longest
        return (
            f"{self.arm or 'step time'}: {at_a * 1e3:.1f} ms at {a:,.0f} tokens, {at_b * 1e3:.1f} ms at "
            f"{b:,.0f}: {self.slope * 1e6:.2f} ms each 1,000 tokens"
        )


def fit(arm: str, points: Iterable[tuple[float, float]]) -> Line | None:
    """Fit (context, step time), or None when the contexts are too close to tell."""
    ordered = sorted(points)
    if len(ordered) < 2 or ordered[-1][0] - ordered[0][0] < 1000 or ordered[-1][0] < 2 * ordered[0][0]:
        return None
    n = len(ordered)
    mean_x, mean_y = sum(x for x, _ in ordered) / n, sum(y for _, y in ordered) / n
    spread = sum((x - mean_x) ** 2 for x, _ in ordered)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in ordered) / spread
    base = mean_y - slope * mean_x
    total = sum((y - mean_y) ** 2 for _, y in ordered)
    left = sum((y - base - slope * x) ** 2 for x, y in ordered)
    return Line(arm, slope, base, 1 - left / total if total else 1.0, ordered[0], ordered[-1])


def speculating(stretches: Sequence[Stretch]) -> dict[str, list[Stretch]]:
    """Return arm → its stretches with verify steps; those that only compare prefix hits are left out."""
    found: dict[str, list[Stretch]] = {}
    for stretch in stretches:
        if stretch.acceptance_length is not None and stretch.cached is None:
            found.setdefault(stretch.arm, []).append(stretch)
    return found


def swept(stretches: Sequence[Stretch]) -> Sequence[Stretch]:
    """Return the context sweep, where one text differs in length only; everything if none was made."""
    return [s for s in stretches if s.text == "context"] or stretches


def lines(e: Evidence) -> list[Line]:
    """Return a line for every speculating arm that was measured at different contexts, else the journal's."""
    measured = [
        line
        for arm, found in speculating(e.stretches).items()
        if (line := fit(arm, [(s.context, s.step_time) for s in swept(found)]))
    ]
    if measured or not e.journal:
        return measured
    windows = [w for generation in e.journal.generations for w in generation if w.acceptance_length]
    line = fit(e.profile, [(float(w.tokens), w.step_time) for w in windows])
    return [line] if line else []


def plain(e: Evidence) -> Line | None:
    """Return the line of plain decoding, if it was measured."""
    return fit(
        "autoregressive", [(s.context, s.step_time) for s in e.stretches if s.acceptance_length is None]
    )
