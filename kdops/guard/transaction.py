"""The transaction: every change of the host's state, each step recorded before it is made."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from kdops.errors import ExitCode, KdopsError
from kdops.guard import closing, decide, explain, key, release
from kdops.guard.context import Context
from kdops.guard.decide import Engine
from kdops.guard.drift import drift
from kdops.guard.model import ADOPTED, Failure, Phase, Result, State, Transaction
from kdops.guard.request import Request
from kdops.guard.tick import finish

_EVIDENCE = 15


def begin(ctx: Context, request: Request) -> dict[str, Any]:
    """Take the lock and open a transaction; `changed` is false when the release already serves without drift.

    `finishing` describes the transaction of a client that is gone, while the guard still ends it: ask again.
    Raises KdopsError (exit 4) while another client holds the lock.
    """
    state = ctx.store.load()
    if state.transaction is not None and state.transaction.id != request.id:
        if left := ctx.leases.left(state.transaction):
            raise _locked(state.transaction, left)
        finish(ctx)
        state = ctx.store.load()
        if state.transaction is not None:
            return {"changed": False, "finishing": describe(state.transaction)}
    elif state.transaction is not None and state.transaction.trial:
        state = _next_trial(ctx, state, state.transaction, request)
    if state.transaction is None:
        if not request.force and _serves(ctx, state, request.release):
            return {"changed": False, "release": request.release, "phase": None}
        state = _open(ctx, state, request)
    ctx.leases.renew(request.id, request.lease)
    ctx.systemd.start("kdops-guard.timer")
    txn = state.transaction
    assert txn is not None
    here = txn.release.startswith(ADOPTED) or release.present(ctx.layout, txn.release)
    return {"changed": True, "release": txn.release, "phase": txn.phase, "present": here, "loads": loads(ctx)}


def _open(ctx: Context, state: State, request: Request) -> State:
    serving = state.serving
    adopt = request.adopt if serving is None else serving.unit if serving.adopted else ""
    target_unit = (
        request.release.removeprefix(ADOPTED) if request.release.startswith(ADOPTED) else request.unit
    )
    txn = Transaction(
        id=request.id,
        release=request.release,
        unit=target_unit,
        service=request.service,
        who=request.who,
        why=request.why,
        lease=request.lease,
        boot_id=ctx.clock.boot_id(),
        opened_at=ctx.clock.utc(),
        phase=Phase.LOCKED,
        phases={Phase.LOCKED: ctx.clock.boottime()},
        invocation=ctx.systemd.show(target_unit).invocation,
        ready_timeout=request.ready_timeout,
        adopting=adopt,
        adopting_enabled=bool(adopt) and ctx.systemd.show(adopt).enabled == "enabled",
        tried=(request.release,) if request.trial else (),
    )
    if adopt and ctx.systemd.show(adopt).load != "loaded":
        raise KdopsError(
            f"unit {adopt} is not on this host",
            cause="engine_adopted_unit names it as the service to replace",
            remedy="correct or remove engine_adopted_unit in the inventory",
            code=ExitCode.REFUSED,
        )
    ctx.store.reserve()
    shutil.rmtree(ctx.layout.partial, ignore_errors=True)
    key.forget(ctx.layout, txn.service)
    state = replace(state, transaction=txn)
    ctx.store.save(state)
    return state


def _next_trial(ctx: Context, state: State, txn: Transaction, request: Request) -> State:
    """Let a trial go on with another release, or the same one started anew; asking twice changes nothing."""
    if txn.phase is not Phase.SMOKED:
        return state
    if request.unit != txn.unit:
        raise KdopsError(
            "a trial stays with one service",
            cause=f"it began with {txn.unit}, this release is for {request.unit}",
            remedy="compare arms of one engine_service",
            code=ExitCode.USAGE,
        )
    phases: dict[str, float] = {Phase.LOCKED: ctx.clock.boottime()}
    now = ctx.systemd.show(txn.unit).invocation
    txn = replace(txn, release=request.release, phase=Phase.LOCKED, phases=phases, invocation=now, smoke=None)
    txn = replace(txn, tried=(*txn.tried, request.release), ready_timeout=request.ready_timeout)
    state = replace(state, transaction=txn)
    ctx.store.save(state)
    return state


def heartbeat(ctx: Context, id_: str, seconds: float) -> dict[str, Any]:
    """Renew the lease; needs no mutex, so a long smoke test does not starve it. 0 seconds hands over to the
    guard.
    """
    txn = ctx.store.load().transaction
    if txn is None or txn.id != id_:
        return {"held": False}
    ctx.leases.renew(id_, seconds)
    return {"held": True, "phase": txn.phase}


def uploading(ctx: Context, id_: str) -> dict[str, Any]:
    """Make the folder that the bundle is uploaded to."""
    ctx.enter(_own(ctx, id_, Phase.LOCKED, Phase.UPLOADING), Phase.UPLOADING)
    shutil.rmtree(ctx.layout.partial, ignore_errors=True)
    ctx.layout.partial.mkdir(parents=True, mode=0o700)
    return {"bundle": str(ctx.layout.partial / release.BUNDLE)}


def upload_done(ctx: Context, id_: str) -> dict[str, Any]:
    """Unpack and prove the uploaded bundle."""
    txn = _own(ctx, id_, Phase.UPLOADING)
    arrived = release.unpack(ctx.layout, txn.release)
    return {"release": arrived.id, "path": str(arrived.path)}


def switch(ctx: Context, id_: str) -> dict[str, Any]:
    """Put the release in place; the old engine keeps serving. Hand-made drop-ins are set aside and named."""
    txn = _own(ctx, id_, Phase.LOCKED, Phase.UPLOADING, Phase.SWITCHING)
    if txn.release.startswith(ADOPTED):
        ctx.enter(txn, Phase.SWITCHING)
        return {"release": txn.release, "set_aside": []}
    new = release.load(ctx.layout, txn.release)
    if damage := new.damage():
        raise KdopsError(
            f"release {new.id} is damaged on this host",
            cause="; ".join(damage),
            remedy="deploy it again: a damaged release is uploaded anew",
            code=ExitCode.REFUSED,
        )
    if not (ctx.layout.venvs / new.venv / "bin" / "python").exists():
        raise KdopsError(
            f"the Python environment {new.venv} of release {new.id} is not on this host",
            cause=f"{ctx.layout.venvs / new.venv} is missing",
            remedy="deploy again with an index or kdops_wheel_dir, so that it can be built",
            code=ExitCode.REFUSED,
        )
    if new.needs_key and not key.at_hand(ctx.layout, new.service):
        raise KdopsError(
            f"the API key of release {new.id} is not on this host",
            cause=f"{ctx.layout.api_key(new.service)} is missing: a release without one was committed",
            remedy="set engine_api_key_file and deploy",
            code=ExitCode.REFUSED,
        )
    ctx.enter(_seen(ctx, txn), Phase.SWITCHING)
    moved = release.set_aside(ctx.layout, new.unit)
    key.take(ctx.layout, new.service)
    release.install_unit(ctx.layout, new)
    release.point_current(ctx.layout, new.id)
    release.set_trial(ctx.layout, new.unit)
    ctx.systemd.reload()
    return {"release": new.id, "set_aside": moved, "kept_in": str(ctx.layout.kept_edits)}


def start(ctx: Context, id_: str) -> dict[str, Any]:
    """Stop what serves (it drains) and start the new release; returns once the jobs are queued."""
    txn = _own(ctx, id_, Phase.SWITCHING)
    state = ctx.store.load()
    txn = ctx.enter(_seen(ctx, txn), Phase.STARTING)
    for unit in closing.others(state, txn, txn.unit):
        ctx.systemd.stop(unit)
        ctx.systemd.disable(unit)
    ctx.systemd.restart(txn.unit)
    return {"phase": txn.phase}


def wait(ctx: Context, id_: str) -> dict[str, Any]:
    """Report what the engine does now; `settled` when a decision is due, `closed` with the outcome when it
    was made.
    """
    state = ctx.store.load()
    txn = state.transaction
    if txn is None or txn.id != id_:
        return _after(state, id_)
    ctx.leases.renew(id_, txn.lease)
    if txn.phase is Phase.RESTORING:
        closing.settle(ctx, state, by="client")
        state = ctx.store.load()
        if state.transaction is None:
            return _after(state, id_)
    unit = ctx.systemd.show(closing.watched(state, txn))
    seen = decide.engine(txn, unit)
    waited = ctx.clock.boottime() - txn.phases[txn.phase]
    if txn.phase is Phase.STARTING:
        if seen is Engine.FAILED:
            lines = ctx.clean(ctx.systemd.journal(unit.invocation, _EVIDENCE))
            txn = _fail(ctx, txn, explain.failed_start(txn.release, unit, lines))
        elif seen is not Engine.READY and waited > txn.ready_timeout:
            lines = ctx.clean(ctx.systemd.journal(unit.invocation, _EVIDENCE))
            txn = _fail(ctx, txn, explain.not_ready(txn.release, waited, unit, lines))
    return {
        "closed": False,
        "settled": txn.failure is not None or (txn.phase is Phase.STARTING and seen is Engine.READY),
        "phase": txn.phase,
        "engine": seen,
        "failure": txn.failure and txn.failure.__dict__,
        "status_text": unit.status_text,
        "seconds": round(waited, 1),
    }


def smoke(ctx: Context, id_: str) -> dict[str, Any]:
    """Test the new release on the host. Raises KdopsError (exit 6), recorded as the transaction's failure."""
    txn = _own(ctx, id_, Phase.STARTING)
    ctx.leases.renew(id_, max(txn.lease, 30.0))
    try:
        result = ctx.smoke_test(txn)
    except KdopsError as error:
        _fail(ctx, txn, Failure(error.title, error.cause, error.remedy, error.code, error.evidence))
        raise
    ctx.leases.renew(id_, txn.lease)
    ctx.enter(replace(txn, smoke=result), Phase.SMOKED)
    return {"smoke": result}


def commit(ctx: Context, id_: str) -> dict[str, Any]:
    """Make the smoke-tested release the committed one and arm its automatic restart."""
    txn = _own(ctx, id_, Phase.SMOKED)
    if txn.trial:
        raise KdopsError(
            "a trial is never committed",
            cause=f"{txn.release} is a leg of an A/B",
            remedy="deploy it: kdops deploy",
        )
    closing.commit(ctx, ctx.store.load(), txn, by="client")
    return _after(ctx.store.load(), id_)


def restore(ctx: Context, id_: str, reason: str, title: str = "", remedy: str = "") -> dict[str, Any]:
    """Go back to the last committed release; `wait` tells when it serves. Before the switch: abort.

    reason: the cause that is recorded unless the guard knows one itself, under `title` with its `remedy`.
    """
    state = ctx.store.load()
    txn = state.transaction
    if txn is None or txn.id != id_:
        return _after(state, id_)
    if txn.failure is None and not (txn.trial and txn.phase is Phase.SMOKED):
        title = title or f"the deploy of {txn.release} was given up"
        title, cause, remedy = ctx.clean((title, reason, remedy or "deploy again"))
        txn = _fail(ctx, txn, Failure(title, cause, remedy, ExitCode.ROLLED_BACK))
        state = ctx.store.load()
    if txn.phase.before_switch and len(txn.tried) < 2:
        closing.close(ctx, state, txn, Result.ABORTED, by="client")
    elif txn.phase is not Phase.RESTORING:
        closing.go_back(ctx, state, txn, by="client")
    return _after(ctx.store.load(), id_)


def loads(ctx: Context) -> list[float]:
    """Return the seconds that committed starts took on this host, oldest first (for an ETA)."""
    seconds = (line.get("seconds") for line in ctx.store.history() if line.get("result") == Result.COMMITTED)
    starts = (phases.get("starting") for phases in seconds if isinstance(phases, dict))
    return [start for start in starts if isinstance(start, int | float)][-10:]


def _after(state: State, id_: str) -> dict[str, Any]:
    if state.transaction is not None and state.transaction.id == id_:
        return {"closed": False, "settled": False, "phase": state.transaction.phase}
    outcome = state.outcome
    if outcome is None or outcome.transaction != id_:
        raise _gone(id_)
    return {"closed": True, "settled": True, "outcome": asdict(outcome)}


def _own(ctx: Context, id_: str, *phases: Phase) -> Transaction:
    state = ctx.store.load()
    txn = state.transaction
    if txn is None or txn.id != id_:
        raise _gone(id_)
    if txn.phase not in phases:
        raise KdopsError(
            "a step of the deploy came out of order",
            cause=f"the transaction is in phase '{txn.phase}', not '{phases[0]}'",
            remedy="deploy again",
        )
    if txn.boot_id != ctx.clock.boot_id():
        raise KdopsError(
            "the host was restarted during the deploy",
            cause=f"the deploy of {txn.release} was in phase '{txn.phase}' before the restart",
            remedy="wait a few seconds for the guard to finish it, then deploy again",
        )
    ctx.leases.renew(id_, txn.lease)
    return txn


def _seen(ctx: Context, txn: Transaction) -> Transaction:
    """The old engine may have restarted by itself since the transaction opened: it is still the old one."""
    return replace(txn, invocation=ctx.systemd.show(txn.unit).invocation)


def _fail(ctx: Context, txn: Transaction, failure: Failure) -> Transaction:
    return ctx.record(replace(txn, failure=failure))


def _serves(ctx: Context, state: State, wanted: str) -> bool:
    serving = state.serving
    if serving is None or serving.release != wanted or ctx.systemd.show(serving.unit).active != "active":
        return False
    return serving.adopted or not drift(ctx, state)


def _gone(id_: str) -> KdopsError:
    return KdopsError(
        "this deploy is no longer open on the host",
        cause=f"transaction {id_} was finished by the guard and another one came after it",
        remedy="`kdops history` and `kdops status` tell how it ended; deploy again if needed",
    )


def describe(txn: Transaction) -> Mapping[str, Any]:
    """Return who holds the lock and why."""
    return {
        "who": txn.who,
        "why": txn.why,
        "since": txn.opened_at,
        "release": txn.release,
        "phase": txn.phase,
    }


def _locked(txn: Transaction, left: float) -> KdopsError:
    why = f" ({txn.why})" if txn.why else ""
    return KdopsError(
        "another deploy is running on this host",
        cause=f"{txn.who} deploys {txn.release}{why} since {txn.opened_at}, phase '{txn.phase}'",
        remedy=f"wait for it; if that client is gone, the guard takes over in {left:.0f} s",
        code=ExitCode.LOCKED,
    )
