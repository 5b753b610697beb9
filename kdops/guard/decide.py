"""The decisions of the state machine, pure: what a unit's properties mean and what comes next."""

from __future__ import annotations

from enum import StrEnum

from kdops.guard.model import Phase, Transaction
from kdops.guard.systemd import Unit


class Engine(StrEnum):
    """What the engine is doing, seen from the open transaction."""

    OLD = "old"
    DRAINING = "draining"
    QUEUED = "queued"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Step(StrEnum):
    """What finishes a transaction whose client is gone."""

    ABORT = "abort"
    RESTORE = "restore"
    WAIT = "wait"
    SMOKE = "smoke"
    COMMIT = "commit"
    CLOSE = "close"


def engine(txn: Transaction, unit: Unit) -> Engine:
    """Classify the unit. The first failed start of a transaction is final: Restart=no keeps it failed."""
    if unit.active == "deactivating" and not _new(txn, unit):
        return Engine.DRAINING
    if unit.queued and not _new(txn, unit):
        return Engine.QUEUED
    if unit.active == "active":
        return Engine.READY if _new(txn, unit) else Engine.OLD
    if unit.active in ("activating", "reloading", "deactivating"):
        return Engine.LOADING
    return Engine.QUEUED if unit.queued else Engine.FAILED


def _new(txn: Transaction, unit: Unit) -> bool:
    return unit.invocation != "" and unit.invocation != txn.invocation


def next_step(txn: Transaction, unit: Unit, *, rebooted: bool, waited: float) -> Step:
    """Return what ends `txn` now that nobody drives it (docs/architecture.md, "The transaction").

    waited: seconds since the phase was entered. After a reboot nothing of the new release was seen to work
    unless it was smoke-tested, so the last committed release is put back before systemd starts the service.
    """
    if txn.phase.before_switch and len(txn.tried) < 2:
        return Step.ABORT
    if txn.phase is Phase.SMOKED and not txn.trial:
        return Step.COMMIT
    if txn.phase is Phase.RESTORING:
        return Step.CLOSE if txn.restarted else Step.RESTORE
    if txn.trial or txn.phase is Phase.SWITCHING or rebooted or txn.failure is not None:
        return Step.RESTORE
    return {
        Engine.OLD: Step.RESTORE,
        Engine.FAILED: Step.RESTORE,
        Engine.READY: Step.SMOKE,
    }.get(engine(txn, unit), Step.WAIT if waited < txn.ready_timeout else Step.RESTORE)
