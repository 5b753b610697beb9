"""One row of `kdops status`: what a person wants to know of a host, from one probe. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kdops.diagnose.failures import Failure
from kdops.errors import ExitCode, KdopsError
from kdops.host.status import HostStatus
from kdops.loose import digits
from kdops.serving import metrics

_BAD_OUTCOMES = ("rolled-back", "stopped", "rollback-failed", "aborted")


@dataclass(frozen=True)
class Row:
    """state: running, unhealthy (systemd says active, HTTP says no), loading, draining, stopped, failed,
    restarting, not deployed, unreachable or error.

    since: seconds in that state. tokens_per_second: SGLang's last log window. acceptance_length comes from
    `al_source`: "engine" (1 + accepted drafts / verify steps) or "SGLang's" (not comparable with AL).
    failure_class: heading in docs/failures.md. notes: drift, open transaction, failed outcome, in words.
    """

    host: str
    state: str
    phase: str | None = None
    release: str | None = None
    profile: str | None = None
    since: float | None = None
    restarts: int | None = None
    running: int | None = None
    queued: int | None = None
    tokens_per_second: float | None = None
    acceptance_length: float | None = None
    al_source: str | None = None
    drift: tuple[str, ...] = ()
    failure_class: str | None = None
    notes: tuple[str, ...] = field(default=())


def row(name: str, found: HostStatus | KdopsError, failure: Failure | None = None) -> Row:
    """Return the row for one host's status, or for why there is none. failure: of the service or deploy."""
    if isinstance(found, KdopsError):
        kind = "unreachable" if found.code == ExitCode.UNREACHABLE else "error"
        return Row(name, kind, notes=(f"{found.title}: {found.cause}", f"remedy: {found.remedy}"))
    unit, engine = found.unit, found.engine
    state = _state(found)
    seen = metrics.parse(engine.metrics) if engine and engine.metrics else metrics.EngineMetrics()
    told = unit.told
    serving = unit.active == "active"
    # The launcher's words are live; SGLang's gauges keep the value of its last log window when idle.
    length, source = _acceptance(told.get("al"), seen) if serving else (None, None)
    return Row(
        host=name,
        state=state,
        phase=(told.get("phase") or unit.status_text or None) if state in ("loading", "draining") else None,
        release=found.release,
        profile=found.profile,
        since=unit.since,
        restarts=unit.restarts if unit.exists else None,
        running=_first(digits(told.get("running")), seen.running) if serving else None,
        queued=_first(digits(told.get("queued")), seen.queued) if serving else None,
        tokens_per_second=seen.throughput if serving else None,
        acceptance_length=length,
        al_source=source,
        drift=found.drift,
        failure_class=failure.failure_class.id if failure else None,
        notes=tuple(_notes(found, state, failure)),
    )


def _state(found: HostStatus) -> str:
    unit = found.unit
    if not unit.exists:
        return "not deployed" if unit.load == "not-found" else f"unit {unit.load}"
    if unit.active == "activating":
        return "restarting" if unit.sub == "auto-restart" else "loading"
    if unit.active == "active":
        answers = found.engine is None or found.engine.health in ("ok", "no answer", "starting")
        return "running" if answers else "unhealthy"
    return {"deactivating": "draining", "inactive": "stopped"}.get(unit.active, unit.active)


def _notes(found: HostStatus, state: str, failure: Failure | None) -> list[str]:
    notes = []
    known = failure.failure_class if failure else None
    if found.unit.status_text and state in ("loading", "draining"):
        notes.append(found.unit.status_text)
    if state in ("failed", "restarting"):
        notes.append(
            f"result {found.unit.result}, exit status {found.unit.exit_status}: see kdops logs {found.host}"
        )
    if found.engine and found.engine.health == "no answer" and state == "running":
        notes.append("the engine does not answer /ping within 1 s: busy, or hung")
    if found.engine and state == "unhealthy":
        notes.append(f"systemd says ready, but HTTP on port {found.engine.port} says: {found.engine.health}")
    if found.drift:
        notes.append("drift: " + "; ".join(found.drift))
    if txn := found.transaction:
        who = f"{txn.who} deploys {txn.release}, phase {txn.phase}"
        guard = (
            "its client is gone: the guard on the host takes over and finishes it"
            if not txn.lease_left
            else f"lease {txn.lease_left:.0f} s, then the guard takes over"
        )
        notes.append(f"deploy open: {who} ({guard})")
    if (last := found.outcome) and last.result in _BAD_OUTCOMES:
        why = f": {last.failure.title}: {last.failure.cause}" if last.failure else ""
        serves = f"serving {last.serves}" if last.serves else "nothing serves"
        notes.append(f"last deploy {last.release} {last.result} at {last.at}{why}; {serves}")
    if failure and known:
        notes.append(f"{known.title}: {known.cause} (see {known.link})")
        notes.append(f"  | {failure.lines[0]}")
        notes.append(f"remedy: {known.remedy}")
    elif last and last.result in _BAD_OUTCOMES and last.failure:
        notes.append(f"remedy: {last.failure.remedy}")
        notes.append(f"evidence: kdops diagnose {found.host}, kdops logs {found.host}")
    notes += [f"not read: {part}: {why}" for part, why in (found.errors or {}).items()]
    return notes


def _acceptance(told: str | None, seen: metrics.EngineMetrics) -> tuple[float | None, str | None]:
    try:
        engine = float(told or "")
    except ValueError:
        engine = math.nan
    if math.isfinite(engine) and engine >= 1:
        return engine, "engine"
    if seen.accept_length:
        return seen.accept_length, "SGLang's"
    return None, None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
