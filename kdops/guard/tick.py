"""The timer's and the boot's turn: finish the transaction of a client that is gone."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from kdops.errors import KdopsError
from kdops.guard import closing, explain
from kdops.guard.context import Context
from kdops.guard.decide import Step, next_step
from kdops.guard.model import Failure, Phase, Result, Transaction


def tick(ctx: Context) -> dict[str, Any]:
    """Do what is due. While a client renews its lease, that is nothing."""
    state = ctx.store.load()
    if state.transaction is None:
        ctx.systemd.stop("kdops-guard.timer")
        return {"open": False}
    if left := ctx.leases.left(state.transaction):
        return {"open": True, "lease_left": round(left, 1)}
    finish(ctx)
    after = ctx.store.load()
    if after.transaction is not None:
        ctx.systemd.start("kdops-guard.timer")
        return {"open": True, "phase": after.transaction.phase}
    return {"open": False, "outcome": after.outcome and asdict(after.outcome)}


def finish(ctx: Context) -> None:
    """Take the open transaction as far as it can go now, without its client."""
    state = ctx.store.load()
    txn = state.transaction
    assert txn is not None
    rebooted = ctx.rebooted(txn)
    unit = ctx.systemd.show(txn.unit)
    waited = ctx.clock.boottime() - txn.phases[txn.phase]
    step = next_step(txn, unit, rebooted=rebooted, waited=waited)
    if step in (Step.ABORT, Step.RESTORE) and txn.failure is None:
        txn = ctx.record(replace(txn, failure=_why(ctx, txn, rebooted=rebooted)))
        state = ctx.store.load()
    if step is Step.ABORT:
        closing.close(ctx, state, txn, Result.ABORTED, by="guard")
    elif step is Step.RESTORE:
        closing.go_back(ctx, state, txn, by="guard")
    elif step is Step.CLOSE:
        closing.settle(ctx, state, by="guard")
    elif step is Step.SMOKE:
        _smoke(ctx, txn)
    elif step is Step.COMMIT:
        closing.commit(ctx, state, txn, by="guard")


def _smoke(ctx: Context, txn: Transaction) -> None:
    try:
        result = ctx.smoke_test(txn)
    except KdopsError as error:
        failure = Failure(error.title, error.cause, error.remedy, error.code, error.evidence)
        txn = ctx.record(replace(txn, failure=failure))
        closing.go_back(ctx, ctx.store.load(), txn, by="guard")
        return
    txn = ctx.enter(replace(txn, smoke=result), Phase.SMOKED)
    closing.commit(ctx, ctx.store.load(), txn, by="guard")


def _why(ctx: Context, txn: Transaction, *, rebooted: bool) -> Failure:
    unit = ctx.systemd.show(txn.unit)
    if txn.phase is Phase.STARTING and unit.active == "failed":
        return explain.failed_start(txn.release, unit, ctx.clean(ctx.systemd.journal(unit.invocation, 15)))
    return explain.vanished(txn.release, txn.phase, rebooted=rebooted)
