"""What to tell systemd, decided from what was seen: pure, no clock and no socket of its own."""

from __future__ import annotations

from dataclasses import dataclass

from kdtree_engine.page import Phase

EXTEND_SECONDS = 60
# Work per second below which a process tree counts as stuck: its own polling costs less.
BUSY_CPU_SECONDS = 0.02
BUSY_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Seen:
    """One look at the engine. cpu_seconds, read_bytes: sums over its processes; turns: scheduler progress
    counter.

    answering: the HTTP side's event loop ran since the last look. draining: the drain's own words, None
    before it."""

    phase: Phase
    cpu_seconds: float = 0.0
    read_bytes: int = 0
    turns: int = 0
    running: int = 0
    queued: int = 0
    steps: int = 0
    accepted: int = 0
    answering: bool = True
    draining: str | None = None


class Watch:
    """Turns looks into sd_notify(3) assignments."""

    def __init__(self, now: float, *, phase_limit: float) -> None:
        self._phase_limit = phase_limit
        self._entered = now
        self._looked = now
        self._last = Seen(Phase.IMPORTS)
        self._al = "-"

    def look(self, now: float, seen: Seen) -> tuple[str, ...]:
        """The assignments to send for this look, in order."""
        last, interval = self._last, max(now - self._looked, 1e-3)
        if seen.phase != last.phase:
            self._entered = now
        self._last, self._looked = seen, now
        if seen.phase is not Phase.SERVING:
            return self._loading(now, seen, last, interval)
        return self._serving(seen, last)

    def _loading(self, now: float, seen: Seen, last: Seen, interval: float) -> tuple[str, ...]:
        in_phase = now - self._entered
        moved = (
            seen.phase != last.phase
            or seen.cpu_seconds - last.cpu_seconds >= BUSY_CPU_SECONDS * interval
            or seen.read_bytes - last.read_bytes >= BUSY_READ_BYTES * interval
        )
        status = f"STATUS=phase={seen.phase.label} {in_phase:.0f} s"
        if in_phase > self._phase_limit:
            return (f"{status}, over its limit of {self._phase_limit:.0f} s",)
        if not moved:
            return (f"{status}, nothing moves",)
        return (status, f"EXTEND_TIMEOUT_USEC={EXTEND_SECONDS * 1_000_000}")

    def _serving(self, seen: Seen, last: Seen) -> tuple[str, ...]:
        steps = seen.steps - last.steps
        if steps > 0:
            self._al = f"{1 + (seen.accepted - last.accepted) / steps:.2f}"
        words = seen.draining or f"running={seen.running} queued={seen.queued} al={self._al}"
        alive = seen.turns != last.turns and seen.answering
        return (f"STATUS={words}", "WATCHDOG=1") if alive else (f"STATUS={words}",)
