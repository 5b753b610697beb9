"""One look at one host, as the dashboard shows it. Pure: from the probe's document to a frozen value."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kdops.errors import KdopsError
from kdops.host.status import GpuSample, HostStatus, parse
from kdops.observe.row import Row, row
from kdops.serving.metrics import EngineMetrics
from kdops.serving.metrics import parse as parse_metrics
from kdops.tui.alarms import Alarm, worst

STALE_S = 4.0


@dataclass(frozen=True)
class Sample:
    """What is known of a host at `at` (seconds since the epoch, this machine's clock).

    row: as `kdops status` shows it. seen: when the host last answered (None: never); a failed look keeps the
    values of the one before. status: the whole probe. paused: a measurement runs there, nothing was asked.
    eta: seconds until it serves, from earlier starts there; negative when it takes longer than usual.
    step_time: seconds of one step of one request, AL × running requests / tokens/s. kv_use: 0 to 1.
    commits[i]: steps since boot that committed i + 1 tokens.
    """

    host: str
    at: float
    row: Row
    seen: float | None = None
    status: HostStatus | None = None
    paused: bool = False
    eta: float | None = None
    step_time: float | None = None
    kv_use: float | None = None
    kv_tokens: int | None = None
    commits: tuple[int, ...] = ()
    alarm: Alarm | None = None

    @property
    def gpus(self) -> tuple[GpuSample, ...]:
        """The GPUs of the last answer."""
        return self.status.gpus if self.status else ()

    def age(self, now: float) -> float | None:
        """Seconds since the host last answered."""
        return None if self.seen is None else max(0.0, now - self.seen)

    def stale(self, now: float) -> bool:
        """True if the values may no longer hold: they must not look live."""
        age = self.age(now)
        return not self.paused and (age is None or age > STALE_S)


def waiting(host: str, at: float) -> Sample:
    """A host that was not heard of yet."""
    return Sample(host, at, Row(host, "connecting"))


def build(
    host: str, at: float, document: Mapping[str, Any], before: Sample, usual: float | None = None
) -> Sample:
    """Return the sample in a probe's document. usual: seconds a start takes there, if known."""
    if document.get("paused"):
        return replace(before, at=at, seen=at, paused=True, row=replace(before.row, notes=(PAUSED,)))
    status = parse(host, document)
    shown = row(host, status)
    told = status.engine.metrics if status.engine else None
    seen = parse_metrics(told) if told else EngineMetrics()
    made = Sample(
        host=host,
        at=at,
        row=shown,
        seen=at,
        status=status,
        eta=usual - status.unit.since
        if usual is not None and status.unit.since is not None and shown.state == "loading"
        else None,
        step_time=_step_time(shown),
        kv_use=seen.kv_use,
        kv_tokens=seen.kv_tokens,
        commits=seen.commits,
    )
    return replace(made, alarm=worst(status, shown, seen.kv_use, _new_restarts(shown, before)))


PAUSED = "polling pauses: kdops measures on this host"


def failed(host: str, at: float, error: KdopsError, before: Sample) -> Sample:
    """Return the sample after a look that failed: the old values, and why there are no new ones."""
    told = row(host, error)
    kept = replace(before.row, state=told.state, notes=told.notes)
    return replace(before, at=at, paused=False, row=kept, alarm=Alarm("critical", told.notes[0]))


def commits_between(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps of each commit length in between; all of `new` if the engine has restarted."""
    pairs = [(then, now) for then, now in itertools.zip_longest(old, new, fillvalue=0)]
    if any(now < then for then, now in pairs):
        return new
    return tuple(now - then for then, now in pairs)


def _step_time(shown: Row) -> float | None:
    if not shown.running or not shown.tokens_per_second:
        return None
    length = 1.0 if shown.profile == "autoregressive" else shown.acceptance_length
    return None if length is None else length * shown.running / shown.tokens_per_second


def _new_restarts(shown: Row, before: Sample) -> bool:
    old = before.row.restarts
    return shown.restarts is not None and old is not None and shown.restarts > old
