"""How a deploy ended, in words: what failed, what serves now, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdops.deploy.guard_call import call, error_of
from kdops.deploy.playbook import Event, Run
from kdops.deploy.why import from_journal, named
from kdops.errors import ExitCode, KdopsError, UnreachableError
from kdops.fleet import Host
from kdops.host import HostConnection

_CODES = {
    "rolled-back": ExitCode.ROLLED_BACK,
    "stopped": ExitCode.ROLLED_BACK,
    "rollback-failed": ExitCode.ROLLBACK_FAILED,
}
_BUILT = 10.0
"""Seconds before the upload from which on the environment must have been built in them."""


def now_serving(outcome: Mapping[str, Any]) -> str:
    """Return the sentence that says what serves after `outcome`."""
    result, serves = outcome["result"], outcome["serves"]
    if result == "committed":
        return f"release {serves} serves"
    if result == "rolled-back":
        return f"rolled back: release {serves} serves"
    if result == "tried":
        return f"the trial is over: release {serves} serves"
    if result == "aborted":
        return (
            f"nothing was changed: release {serves} serves"
            if serves
            else "nothing was changed: no release serves"
        )
    if result == "stopped":
        return "first deploy: the service is stopped and disabled, no release serves"
    return "rolling back failed too: NO release serves"


def summary(outcome: Mapping[str, Any], before: str | None) -> str:
    """Return one line: what serves, what served before, and where the time went."""
    spent, smoke = outcome["seconds"], (outcome["smoke"] or {}).get("seconds", 0.0)
    parts = {
        "environment": spent.get("locked", 0.0),
        "upload": spent.get("uploading", 0.0),
        "load": spent.get("starting", 0.0) - smoke,
        "smoke test": smoke,
    }
    if parts["environment"] < _BUILT:
        del parts["environment"]
    took = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in parts.items())
    was = f"was {before}" if before else "the first one"
    return f"{outcome['serves']} serves ({was}), {sum(spent.values()):.0f} s: {took}"


def failed(host: Host, id_: str, ended: Run, outcome: Mapping[str, Any] | None) -> KdopsError:
    """Return the error for a run that did not succeed. An unreachable host is asked once more what it did."""
    error = _first_error(host, ended)
    if outcome is None and (ended.of("unreachable") or ended.status == "timeout"):
        return _lost(host, id_, ended, error)
    if outcome is None:
        return error
    code = _CODES.get(outcome["result"], error.code)
    failure = outcome.get("failure") or {}
    evidence = tuple(failure.get("evidence", ())) or error.evidence
    return KdopsError(
        error.title,
        cause=error.cause,
        remedy=f"{now_serving(outcome)}; {error.remedy}",
        code=code,
        evidence=evidence,
    )


def with_class(host: Host, outcome: Mapping[str, Any] | None, error: KdopsError) -> KdopsError:
    """Name the class of an engine's failure; where the journal is out of reach the guard's words stay."""
    if outcome is None or outcome["result"] not in _CODES:
        return error
    try:
        with HostConnection(host) as connection:
            return named(error, from_journal(connection, str(outcome["unit"])))
    except KdopsError:
        return error


def _first_error(host: Host, ended: Run) -> KdopsError:
    """Return what failed first: the guard's words, else Ansible's."""
    for event in ended.events:
        if event.kind == "failed" and event.answer is not None:
            if not event.answer["ok"]:
                return error_of(event.answer["error"])
            found = event.answer.get("failure") or (event.answer.get("outcome") or {}).get("failure")
            if found:
                return error_of(found)
        if event.kind in ("failed", "unreachable"):
            return _ansible_error(host, event)
    return KdopsError(
        f"{host.name}: the deploy did not end",
        cause=f"ansible ended as '{ended.status}'",
        remedy="deploy again",
    )


def _ansible_error(host: Host, event: Event) -> KdopsError:
    lines = tuple(event.message.strip().splitlines()[:10]) or ("no message",)
    if event.kind == "unreachable":
        return UnreachableError(
            f"{host.name}: the host was lost at '{event.task}'", cause=lines[0], remedy="", evidence=lines[1:]
        )
    return KdopsError(
        f"{host.name}: '{event.task}' failed",
        cause=lines[0],
        remedy="correct the cause, then deploy again",
        evidence=lines[1:],
    )


def _lost(host: Host, id_: str, ended: Run, error: KdopsError) -> KdopsError:
    last = next((e.answer["phase"] for e in reversed(ended.events) if e.answer and e.answer.get("phase")), "")
    switched = any(e.kind == "ok" and e.task == "Switch to the release" for e in ended.events)
    promise = (
        "the guard on the host finishes the deploy or puts the last committed release back"
        if switched or last not in ("", "locked", "uploading")
        else "the release that served before still serves"
    )
    return UnreachableError(
        error.title,
        cause=error.cause,
        remedy=f"{promise}; when the host is back: kdops status {host.name}",
        evidence=(*error.evidence, f"transaction {id_}"),
    )


def interrupted(host: Host, id_: str) -> KdopsError:
    """Undo the deploy if it did not switch yet, else hand over to the guard; return the words for it."""
    try:
        with HostConnection(host) as connection:
            report = call(connection, "status")
            txn = report and report["transaction"]
            if not txn or txn["id"] != id_:
                return _interrupt("nothing was changed by this deploy", f"see kdops status {host.name}")
            if txn["phase"] in ("locked", "uploading"):
                answer = call(connection, "restore", "--id", id_, "--reason", "interrupted by the operator")
                serving = (
                    now_serving(answer["outcome"])
                    if answer and answer.get("outcome")
                    else "nothing was changed"
                )
                return _interrupt(serving, "deploy again when you like")
            call(connection, "heartbeat", "--id", id_, "--seconds", "0")
    except KdopsError as error:
        return _interrupt(
            f"the host cannot be asked ({error.title})",
            f"the guard there finishes or undoes the deploy; kdops status {host.name}",
        )
    return _interrupt(
        f"the guard on {host.name} goes on with {txn['release']}: it commits it once it is ready and tested, "
        "else puts the last committed release back",
        f"watch it: kdops status {host.name}, kdops logs {host.name} -f",
    )


def _interrupt(cause: str, remedy: str) -> KdopsError:
    return KdopsError("interrupted", cause=cause, remedy=remedy, code=ExitCode.INTERRUPTED)
