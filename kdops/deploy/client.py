"""The operator's side of a deploy: plan, run the playbook, tell how it ended."""

from __future__ import annotations

import getpass
import re
import signal
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdops.deploy import bundle as bundles
from kdops.deploy import ending
from kdops.deploy.bundle import Bundle
from kdops.deploy.guard_call import DamagedGuardError, Runner, call
from kdops.deploy.heartbeat import Heartbeat
from kdops.deploy.plan import Plan, plan
from kdops.deploy.playbook import Event, Run, run
from kdops.deploy.progress import Display, Progress
from kdops.errors import ExitCode, KdopsError, UsageError
from kdops.fleet import Host
from kdops.host import HostConnection

_RUN_MARGIN = 900.0
_LEASE_S = 60.0
_START_S = 1800.0


@dataclass(frozen=True)
class Options:
    """why: for the audit line. lease: seconds a silent client keeps the lock. ready_timeout: for a start."""

    why: str = ""
    lease: float = _LEASE_S
    ready_timeout: float = _START_S


@dataclass(frozen=True)
class Deployed:
    """A deploy that succeeded. outcome: the guard's record, None when nothing had to change."""

    plan: Plan
    outcome: Mapping[str, Any] | None


def make_plan(host: Host, bundle: Bundle) -> Plan:
    """Ask the host what is there. Raises UnreachableError."""
    with HostConnection(host) as connection:
        return ask(connection, bundle)


def loads(host: Host) -> list[float]:
    """Return the seconds that earlier starts took on the host, oldest first. Raises UnreachableError."""
    with HostConnection(host) as connection:
        report = call(connection, "status")
    return list(report["loads"]) if report else []


def ask(runner: Runner, bundle: Bundle) -> Plan:
    """Return the plan for the host behind `runner`; a guard that is damaged there is replaced by a deploy."""
    try:
        return plan(bundle, call(runner, "inspect", "--service", bundle.service))
    except DamagedGuardError as error:
        return Plan(
            bundle.release, None, (f"the guard on the host is damaged ({error.cause}): installed anew",), ()
        )


def seconds(host: Host, variable: str, default: float) -> float:
    """Return a duration from the inventory. Raises UsageError naming where a wrong one is written."""
    value = host.variables.get(variable, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise UsageError(
            f"{variable} must be a number of seconds, not {value!r}",
            cause=f"written in {host.origins.get(variable, 'the inventory')}",
            remedy=f"for example {variable}: {default:.0f}",
        )
    return float(value)


def options(host: Host, why: str, start: float = _START_S) -> Options:
    """Return lease and time limits for the host. start: seconds that a start may take where the inventory
    says nothing. Raises UsageError."""
    return Options(why, seconds(host, "kdops_lease", _LEASE_S), seconds(host, "kdops_ready_timeout", start))


def request(bundle: Bundle, host: Host, options: Options) -> dict[str, Any]:
    """Return the document that opens the transaction on the host."""
    return {
        "id": uuid.uuid4().hex,
        "release": bundle.release,
        "unit": bundle.unit,
        "service": bundle.service,
        "who": f"{getpass.getuser()}@{socket.gethostname()}",
        "why": options.why,
        "lease": options.lease,
        "ready_timeout": options.ready_timeout,
        "adopt": _adopted(host),
    }


def _adopted(host: Host) -> str:
    value = host.variables.get("engine_adopted_unit") or ""
    if value and not (
        isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.@-]*\.service", value)
    ):
        raise UsageError(
            f"engine_adopted_unit must name a service, not {value!r}",
            cause=f"written in {host.origins.get('engine_adopted_unit', 'the inventory')}",
            remedy="for example engine_adopted_unit: sglang.service",
        )
    return value


def deploy(
    host: Host,
    bundle: Bundle,
    options: Options,
    display: Display,
    check: Callable[[Display], None] | None = None,
) -> Deployed:
    """Make `bundle` the committed release of `host`; nothing is done if it serves there without drift.

    check: raises what refuses the deploy; called when there is something to do, before anything is done.

    Raises KdopsError with the exit code of docs/operating.md. Whatever happens: once this call or the guard
    on the host has finished, the last committed or the new release serves, or, on a first deploy, the service
    is stopped.
    """
    planned = make_plan(host, bundle)
    refuse_locked(host, planned)
    for line in (*planned.changes, *(f"drift: {line}" for line in planned.drift)):
        display.note(line)
    if planned.empty:
        return Deployed(planned, None)
    if check:
        check(display)
    opening = {**request(bundle, host, options), "force": planned.new_key}
    with Heartbeat(host, opening["id"], options.lease):
        ended = play(host, bundle, opening, options, display)
    if ended.status == "canceled":
        raise ending.interrupted(host, opening["id"])
    return Deployed(planned, _outcome(host, opening["id"], ended))


def refuse_locked(host: Host, planned: Plan) -> None:
    """Raise KdopsError (exit 4) while another client's deploy is open; the guard decides later again."""
    holder = planned.holder
    if not holder or not holder.get("lease_left"):
        return
    why = f" ({holder['why']})" if holder.get("why") else ""
    raise KdopsError(
        f"{host.name}: another deploy is running on this host",
        cause=f"{holder['who']} deploys {holder['release']}{why} since {holder['opened_at']}, "
        f"phase '{holder['phase']}'",
        remedy=f"wait for it; if that client is gone, the guard takes over in {holder['lease_left']:.0f} s",
        code=ExitCode.LOCKED,
    )


def play(host: Host, bundle: Bundle, opening: Mapping[str, Any], options: Options, display: Display) -> Run:
    """Run the playbook for a transaction opened by the document `opening`; status "canceled" on Ctrl-C."""
    with tempfile.TemporaryDirectory(prefix="kdops-bundle.") as folder, _interruptible() as stop:
        bundles.write(bundle, Path(folder), opening)
        return run(
            "deploy.yml",
            host,
            {"kdops_bundle": folder, "kdops_trial": bool(opening.get("trial"))},
            timeout=options.ready_timeout * 2 + _RUN_MARGIN,
            on_event=Progress(display).feed,
            cancelled=stop.is_set,
        )


def _outcome(host: Host, id_: str, ended: Run) -> Mapping[str, Any] | None:
    outcome = ended.outcome(id_)
    if ended.status == "successful":
        return outcome
    raise ending.with_class(host, outcome, ending.failed(host, id_, ended, outcome))


def check(host: Host, bundle: Bundle, options: Options) -> list[Event]:
    """Run the playbook in Ansible's check mode: nothing is changed; the events carry the differences."""
    with tempfile.TemporaryDirectory(prefix="kdops-bundle.") as folder, _interruptible() as stop:
        bundles.write(bundle, Path(folder), request(bundle, host, options))
        ended = run(
            "deploy.yml",
            host,
            {"kdops_bundle": folder},
            timeout=_RUN_MARGIN,
            on_event=lambda _event: None,
            cancelled=stop.is_set,
            check=True,
        )
    if ended.status != "successful":
        raise ending.failed(host, "", ended, None)
    return ended.events


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Turn SIGINT and SIGTERM into an event, so that an interrupt ends the run in order."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    old = {sig: signal.signal(sig, lambda *_: event.set()) for sig in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for sig, handler in old.items():
            signal.signal(sig, handler)
