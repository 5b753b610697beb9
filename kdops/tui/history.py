"""What a host did over time: rings of samples for the plots, of a fixed size. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kdops.tui.sample import Sample, commits_between

POINTS = 1800
RECENT_S = 300.0


@dataclass(frozen=True)
class Point:
    """The plotted values at one time; None where there was none."""

    at: float
    tokens_per_second: float | None
    acceptance_length: float | None
    step_time: float | None
    kv_use: float | None


@dataclass
class History:
    """The newest POINTS values of one host."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS))
    _counted: deque[tuple[float, tuple[int, ...]]] = field(default_factory=lambda: deque(maxlen=POINTS))

    def add(self, sample: Sample) -> None:
        """Add a sample that the host answered; others leave a gap."""
        live = sample.seen == sample.at and not sample.paused
        shown = sample.row
        self.points.append(
            Point(
                sample.at,
                shown.tokens_per_second if live else None,
                shown.acceptance_length if live and shown.running else None,
                sample.step_time if live else None,
                sample.kv_use if live else None,
            )
        )
        if live:
            self._counted.append((sample.at, sample.commits))

    def recent_commits(self) -> tuple[int, ...]:
        """Return the steps of each commit length in the last RECENT_S seconds."""
        if not self._counted:
            return ()
        newest, commits = self._counted[-1]
        old = next((then for at, then in self._counted if at >= newest - RECENT_S), ())
        return commits_between(old, commits)
