"""Crashes, restarts and what changed."""

from __future__ import annotations

from dataclasses import replace

from kdops.diagnose.evidence import AL, START, STEP_TIME, Evidence, Past
from kdops.diagnose.failure_class import Kind
from kdops.diagnose.failures import Failure, classify
from kdops.diagnose.finding import Confidence, Finding, Severity

_BEFORE = 3
_ALLOWED = {AL: (0.9, None), STEP_TIME: (None, 1.15), START: (None, 1.5)}
"""How far a new release may be outside the range that this host has shown: (below, above)."""


def failed(e: Evidence) -> tuple[Finding, ...]:
    """The failure that the journal shows, tied to the settings that changed.

    A service that runs has got over it: then it counts only if systemd had to start it again.
    """
    failure = e.journal.failure if e.journal else None
    if failure is None or (e.unit is None and not failure.fatal):
        return ()
    runs = e.unit is not None and e.unit.active == "active"
    if e.unit is not None and e.unit.active == "inactive":  # stopped by a person
        return ()
    if runs and e.unit is not None and not e.unit.restarts:
        return ()
    again = (f"systemd started it again: {e.unit.restarts} restarts",) if runs and e.unit else ()
    changed = () if e.failed_deploy else _changes(e)
    return (_of_class(e, failure, Severity.SLOW if runs else Severity.WRONG, (*again, *changed)),)


def stopped(e: Evidence) -> tuple[Finding, ...]:
    """The service is down and did not fail: it was stopped, was never started, or is not there."""
    unit = e.unit
    if unit is None or unit.active != "inactive":
        return ()
    return (
        Finding(
            "not-running",
            unit.absence or "the service is stopped",
            Severity.WRONG,
            Confidence.CERTAIN,
            "systemd there has no unit that it could start"
            if unit.absence
            else "it did not fail: it was stopped, or not started since the boot",
            f"kdops deploy {e.host}" if unit.absence else f"kdops start {e.host}",
            f"kdops history {e.host}" if unit.absence else f"kdops logs {e.host}",
            (
                f"unit inactive since {unit.since}"
                if unit.since
                else "unit inactive: no start since the boot",
            ),
        ),
    )


def restarted(e: Evidence) -> tuple[Finding, ...]:
    """systemd restarted the service, or it is down, and no line says why."""
    named = e.journal and e.journal.failure
    if not e.unit or named or (not e.unit.restarts and e.unit.active != "failed"):
        return ()
    down = e.unit.active == "failed"
    return (
        Finding(
            "unknown-failure",
            "the service failed" if down else f"systemd restarted the service {e.unit.restarts} times",
            Severity.WRONG if down else Severity.NOTE,
            Confidence.CERTAIN,
            "no known pattern matches the journal, so the reason is unknown",
            f"read the journal, and attach kdops report {e.host} to an issue if it tells you nothing",
            f"kdops logs {e.host} -n 500",
            (f"unit {e.unit.active}, restarts: {e.unit.restarts}", *_changes(e)),
        ),
    )


def deploy_failed(e: Evidence) -> tuple[Finding, ...]:
    """The last deploy went back; what serves is the release before it."""
    last = e.failed_deploy
    if last is None:
        return ()
    title = f"the last deploy ({last.release}) failed"
    if failure := classify((*last.lines, last.cause)):
        one = _of_class(e, failure, Severity.NOTE, _changes(e))
        return (replace(one, title=f"{title}: {one.title}", next_experiment=""),)
    return (
        Finding(
            "deploy-failed",
            title,
            Severity.NOTE,
            Confidence.CERTAIN,
            f"{last.title}: {last.cause}",
            last.remedy,
            f"kdops history {e.host}",
            (*last.lines[-5:], *_changes(e)) or (f"release {last.release}",),
        ),
    )


def _of_class(e: Evidence, failure: Failure, severity: Severity, more: tuple[str, ...]) -> Finding:
    one = failure.failure_class
    return Finding(
        one.id,
        one.title,
        severity,
        Confidence.CERTAIN if one.kind is Kind.CAUSE else Confidence.POSSIBLE,
        one.cause,
        one.remedy.replace("HOST", e.host),
        f"kdops rollback {e.host}" if _changes(e) else "",
        (*failure.lines, *more),
    )


def outside_history(e: Evidence) -> tuple[Finding, ...]:
    """A new release outside the host's own range."""
    return tuple(finding for past in e.past if (finding := _outside(e, past)))


def _outside(e: Evidence, past: Past) -> Finding | None:
    below, above = _ALLOWED.get(past.quantity, (None, None))
    if len(past.before) < _BEFORE:
        return None
    low, high = min(past.before), max(past.before)
    if not (below and past.now < below * low) and not (above and past.now > above * high):
        return None
    gone = past.quantity == AL and past.now < 1.05
    return Finding(
        "outside-history",
        f"{past.quantity} is outside this host's own range",
        Severity.SLOW,
        Confidence.CERTAIN,
        "with this release every draft is rejected, which earlier releases on this host did not show: "
        "answers stay right, speed falls"
        if gone
        else "the release does something that the earlier ones on this host did not",
        f"go back until it is understood: kdops rollback {e.host}",
        f"kdops ab {e.profile or 'linear'} autoregressive --host {e.host} --quick",
        (
            f"{past.quantity} {past.words(past.now)}, before {past.words(low)} to "
            f"{past.words(high)} in {len(past.before)} measurements",
            *((f"release {past.release}, before it {past.previous}",) if past.previous else ()),
            *_changes(e),
        ),
        ("the text: the same prompt sets are compared",) if past.quantity == AL else (),
    )


def _changes(e: Evidence) -> tuple[str, ...]:
    return tuple(f"differs from the last good release: {c.setting} {c.before} → {c.after}" for c in e.changes)
