"""Start, stop and restart a deployed service through systemd, and watch it get there."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kdops.errors import ExitCode, KdopsError, UnreachableError
from kdops.host.connection import HostConnection
from kdops.host.follow import Query, read
from kdops.host.on_host import PROPERTIES
from kdops.host.probe import probe
from kdops.host.status import UnitState, unit_state
from kdops.text import printable

POLL_S = 0.5
_LINK_S = 60.0
_LAST_LINES = 3000
_WAITS_TO_RESTART = "auto-restart"


class Action(StrEnum):
    """What systemd is asked to do."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


@dataclass(frozen=True)
class Ended:
    """How an action ended: the unit's last state, and the journal of that start when it is not what was
    asked."""

    unit: UnitState
    ok: bool
    lines: tuple[str, ...] = ()


def act(
    connection: HostConnection, action: Action, *, now: bool, progress: Callable[[UnitState], None]
) -> Ended:
    """Do `action` and wait until the service is ready, stopped or failed; `progress` sees every poll.

    now: do not drain: the main process and its children are killed. Interrupting the wait stops nothing.
    Raises KdopsError (locked) while a deploy is open, (refused) if nothing was ever deployed.
    """
    status = probe(connection)
    name, unit = connection.host.name, status.unit
    if status.transaction:
        txn = status.transaction
        raise KdopsError(
            f"{name}: a deploy is in progress",
            cause=f"{txn.who} deploys {txn.release} (phase {txn.phase}, since {txn.opened_at})",
            remedy=f"wait for it; without its client the host itself ends it in {txn.lease_left:.0f} s",
            code=ExitCode.LOCKED,
        )
    if not unit.exists:
        raise KdopsError(
            f"{name}: {unit.absence}",
            cause=f"systemd there says of {unit.name}: {unit.load}",
            remedy=f"deploy first: kdops deploy {name}",
            code=ExitCode.REFUSED,
        )
    if action is Action.STOP or (action is Action.RESTART and now):
        stopped = _stop(connection, unit, now, progress)
        if action is Action.STOP:
            return stopped
    return _start(connection, unit, "restart" if action is Action.RESTART else "start", progress)


def _stop(
    connection: HostConnection, unit: UnitState, now: bool, progress: Callable[[UnitState], None]
) -> Ended:
    connection.run(["systemctl", "stop", "--no-block", unit.name], check=True)
    if now:
        connection.run(["systemctl", "kill", "--signal=SIGKILL", unit.name])
    state = _wait(connection, unit.name, lambda u: u.active in ("inactive", "failed"), progress)
    if now:
        connection.run(["systemctl", "reset-failed", unit.name])
    return Ended(state, ok=True)


def _start(
    connection: HostConnection, unit: UnitState, verb: str, progress: Callable[[UnitState], None]
) -> Ended:
    # A start limit met earlier must not refuse a person's wish; this also sets NRestarts back to 0.
    connection.run(["systemctl", "reset-failed", unit.name])
    if connection.run(["systemctl", "show", "-P", "SubState", unit.name]).text.strip() == _WAITS_TO_RESTART:
        # A start would wait for systemd's own next try, and look like one.
        verb = "restart"
    connection.run(["systemctl", verb, "--no-block", unit.name], check=True)
    state = _wait(connection, unit.name, lambda u: not u.job or _failed_once(u), progress)
    if state.active == "active" and not _failed_once(state):
        return Ended(state, ok=True)
    entries = read(connection, Query(unit.name, lines=_LAST_LINES))
    lines = [printable(entry.message) for entry in entries if entry.invocation == state.invocation]
    return Ended(state, ok=False, lines=tuple(lines))


def _failed_once(state: UnitState) -> bool:
    # The first failed start is the answer, although systemd may try again.
    return state.sub == _WAITS_TO_RESTART or state.restarts > 0


def _wait(
    connection: HostConnection,
    name: str,
    done: Callable[[UnitState], bool],
    progress: Callable[[UnitState], None],
) -> UnitState:
    """Poll until `done`; a link that breaks meanwhile is given _LINK_S seconds to come back."""
    seen = time.monotonic()
    while True:
        try:
            result = connection.run(["systemctl", "show", name, "-p", PROPERTIES], check=True)
        except UnreachableError:
            if time.monotonic() - seen > _LINK_S:
                raise
        else:
            seen = time.monotonic()
            pairs = (line.partition("=") for line in result.text.splitlines())
            state = unit_state(name, {key: value for key, mark, value in pairs if mark}, None)
            progress(state)
            if done(state):
                return state
        time.sleep(POLL_S)
