"""How transactions end: commit, go back, close. Used by the client's commands and by the timer alike."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace

from kdops.errors import ExitCode
from kdops.guard import key, release
from kdops.guard.context import Context
from kdops.guard.model import ADOPTED, Committed, Failure, Outcome, Phase, Result, State, Transaction

_RESTARTS_LEFT = 2


def target(state: State, txn: Transaction) -> Committed | None:
    """Return what must serve if `txn` is not committed; None on a first deploy."""
    return state.serving or _adopted(txn)


def _adopted(txn: Transaction) -> Committed | None:
    if not txn.adopting:
        return None
    name = ADOPTED + txn.adopting
    return Committed(name, txn.adopting, "", txn.opened_at, txn.who, "adopted", txn.adopting_enabled)


def others(state: State, txn: Transaction, unit: str) -> list[str]:
    """Return the units of this transaction that must not run beside `unit` (two would fight for the GPUs)."""
    old = target(state, txn)
    return sorted({txn.unit, *([old.unit] if old else [])} - {unit})


def watched(state: State, txn: Transaction) -> str:
    """Return the unit whose start is waited for."""
    back = target(state, txn)
    return back.unit if txn.phase is Phase.RESTORING and back else txn.unit


def commit(ctx: Context, state: State, txn: Transaction, *, by: str) -> None:
    """Arm the automatic restart and record the release; if it died meanwhile, go back instead."""
    release.clear_trial(ctx.layout, txn.unit)
    ctx.systemd.reload()
    if ctx.systemd.show(txn.unit).active != "active" and not ctx.rebooted(txn):
        failure = Failure(
            f"release {txn.release} died after its smoke test",
            "the service is no longer active",
            "read the journal: `kdops logs HOST -n 50`",
            ExitCode.ROLLED_BACK,
        )
        go_back(ctx, state, ctx.record(replace(txn, failure=failure)), by=by)
        return
    ctx.systemd.enable(txn.unit)
    adopted = txn.release.startswith(ADOPTED)
    if adopted:
        release.point_current(ctx.layout, None)
    venv = "" if adopted else release.load(ctx.layout, txn.release).venv
    new = Committed(txn.release, txn.unit, venv, ctx.clock.utc(), txn.who, txn.why)
    if state.serving is None and (old := _adopted(txn)):
        state = replace(state, committed=(old,))
    release.keep_edits(ctx.layout)
    if not adopted and not release.load(ctx.layout, txn.release).needs_key:
        key.drop(ctx.layout, txn.service)
    close(ctx, replace(state, committed=state.with_committed(new)), txn, Result.COMMITTED, by=by)


def go_back(ctx: Context, state: State, txn: Transaction, *, by: str) -> None:
    """Put the last committed release back; start it unless its engine never stopped.

    Repeating it is harmless.
    """
    txn = ctx.enter(txn, Phase.RESTORING)
    back = target(state, txn)
    release.clear_trial(ctx.layout, txn.unit)
    release.bring_back(ctx.layout, txn.unit)
    key.give_back(ctx.layout, txn.service)
    if back is None or back.adopted:
        release.point_current(ctx.layout, None)
    else:
        good = release.load(ctx.layout, back.release)
        release.install_unit(ctx.layout, good)
        release.point_current(ctx.layout, good.id)
    ctx.systemd.reload()
    unit = ctx.systemd.show(txn.unit)
    untouched = unit.active == "active" and unit.invocation == txn.invocation and not unit.queued
    untouched = untouched and len(txn.tried) < 2  # a later leg's invocation is that of the leg before it
    for other in others(state, txn, back.unit if back else ""):
        if back is None or other != back.unit:
            ctx.systemd.disable(other)
            ctx.systemd.stop(other)
    if back is None:
        close(ctx, replace(state, transaction=txn), txn, Result.STOPPED, by=by)
        return
    if back.unit == txn.unit and untouched:
        close(ctx, state, txn, Result.ROLLED_BACK, by=by)
        return
    if back.unit == txn.unit and unit.up:
        ctx.systemd.stop(txn.unit)
    if back.enabled:
        ctx.systemd.enable(back.unit)
    ctx.systemd.start(back.unit)
    ctx.record(replace(txn, restarted=True))


def settle(ctx: Context, state: State, *, by: str) -> None:
    """Close a transaction that is going back once the last committed release serves, or cannot."""
    txn = state.transaction
    assert txn is not None
    if not txn.restarted:
        go_back(ctx, state, txn, by=by)
        return
    back = target(state, txn)
    assert back is not None
    unit = ctx.systemd.show(back.unit)
    if unit.active == "active" and not unit.queued:
        tried = txn.trial and txn.failure is None
        close(ctx, state, txn, Result.TRIED if tried else Result.ROLLED_BACK, by=by)
    elif (unit.active == "failed" and not unit.queued) or int(unit.restarts or 0) >= _RESTARTS_LEFT:
        close(ctx, state, txn, Result.ROLLBACK_FAILED, by=by)


def close(ctx: Context, state: State, txn: Transaction, result: Result, *, by: str) -> None:
    """Record how `txn` ended, tell the audit log, release the lock, stop the timer; trial releases go."""
    release.recover(ctx.layout)
    if result is Result.ABORTED:
        shutil.rmtree(ctx.layout.partial, ignore_errors=True)
    back = target(state, txn)
    now = ctx.clock.boottime()
    starts = sorted(txn.phases.items(), key=lambda item: item[1])
    ends = [*(entered for _, entered in starts[1:]), now]
    outcome = Outcome(
        transaction=txn.id,
        result=result,
        release=txn.release,
        unit=txn.unit,
        serves=back.release if back and result is not Result.ROLLBACK_FAILED else None,
        by=by,
        at=ctx.clock.utc(),
        who=txn.who,
        why=txn.why,
        seconds={str(phase): round(end - begun, 1) for (phase, begun), end in zip(starts, ends, strict=True)},
        failure=txn.failure,
        smoke=txn.smoke,
    )
    ctx.store.save(replace(state, transaction=None, outcome=outcome))
    ctx.store.audit(asdict(outcome))
    key.forget(ctx.layout, txn.service)
    kept = {c.release for c in state.committed}
    for name in set(txn.tried) - kept:
        shutil.rmtree(ctx.layout.releases / name, ignore_errors=True)
    ctx.leases.end()
    ctx.systemd.stop("kdops-guard.timer")
