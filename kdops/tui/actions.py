"""What can be done to a host: the same functions as the command line's, with its plan and its command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kdops import fleet
from kdops.check import before_deploy
from kdops.deploy import bundle as bundles
from kdops.deploy import client, rollback
from kdops.deploy.bundle import Bundle
from kdops.deploy.ending import summary
from kdops.deploy.progress import Display
from kdops.deploy.why import not_started
from kdops.errors import ExitCode, KdopsError
from kdops.fleet import EngineConfig, Host
from kdops.host import HostConnection, service
from kdops.host.status import UnitState
from kdops.observe import record
from kdops.text import printable
from kdops.tui.dialogs import Choice
from kdops.tui.process import COMMAND, follow

WHY = "from kdops tui"


@dataclass(frozen=True)
class Action:
    """name: the command of kdops. changes: it touches the host, so it needs --write."""

    name: str
    words: str
    changes: bool = True


ACTIONS = (
    Action("deploy", "deploy the inventory's profile"),
    Action("profile", "switch profile: deploy another one"),
    Action("restart", "restart: drain, stop, start"),
    Action("start", "start"),
    Action("stop", "stop: drain, stop"),
    Action("rollback", "roll back to the release before"),
    Action("check", "check: would a deploy be accepted, and fit?", changes=False),
    Action("diagnose", "diagnose: why is it slow, or down?", changes=False),
    Action("report", "report: everything about it in one file", changes=False),
)


@dataclass(frozen=True)
class Prepared:
    """An action that needs only a yes. plan: what will change; effect: what that means for requests.

    run: does it, telling progress, and returns how it ended; raises KdopsError.
    """

    title: str
    command: str
    effect: str
    plan: Sequence[str]
    run: Callable[[Display], str]
    ask: bool = True


def choices(write: bool) -> list[Choice]:
    """Return every action; those that change a host need `write`."""
    return [
        Choice(one.name, one.words, "needs --write" if one.changes and not write else "") for one in ACTIONS
    ]


def prepare(name: str, host: Host, profile: str | None = None) -> Prepared:
    """Find out what the action would do; asks the host. Raises KdopsError."""
    if name in ("deploy", "profile"):
        return _deploy(host, profile)
    if name == "rollback":
        return _rollback(host)
    if name in ("start", "stop", "restart"):
        return _service(name, host)
    return _command(name, host)


def _deploy(host: Host, profile: str | None) -> Prepared:
    config = fleet.engine_config(host, profile, {})
    made = bundles.build(config, host)
    command = ["kdops", "deploy", host.name, *(["--profile", profile] if profile else []), "--why", WHY]
    return _transaction("deploy", host, config, made, command)


def _rollback(host: Host) -> Prepared:
    made = rollback.target(host, None)
    return _transaction("roll back", host, None, made, ["kdops", "rollback", host.name, "--why", WHY])


def _transaction(
    verb: str, host: Host, config: EngineConfig | None, made: Bundle, command: Sequence[str]
) -> Prepared:
    planned = client.make_plan(host, made)
    lines = [*planned.changes, *(f"drift: {line}" for line in planned.drift)]
    lines += [f"in all: {planned.effect}"] if planned.effect else []
    effect = (
        f"{host.name}: its engine drains and stops; {made.release} loads, is tested and serves,"
        " or what serves now comes back"
        if not planned.empty
        else f"{host.name}: nothing to change, {planned.release} serves; no request is touched"
    )

    def run(display: Display) -> str:
        if config:
            limits = client.options(host, WHY, config.start_timeout)
            done = client.deploy(host, made, limits, display, before_deploy(host, config, made))
        else:
            done = client.deploy(host, made, client.options(host, WHY), display)
        record.deployed(host, made, done.outcome, display.note)
        if done.outcome is None:
            return f"{host.name}: nothing to change, release {done.plan.release} serves"
        return f"{host.name}: {summary(done.outcome, done.plan.serving)}"

    return Prepared(
        f"{verb} {host.name}: {made.release}", _shell(command, host), effect, lines or ["no change"], run
    )


def _service(name: str, host: Host) -> Prepared:
    effects = {
        "start": "the engine loads and serves",
        "stop": "running requests are finished, then nobody is served",
        "restart": "running requests are finished, then nobody is served until it has loaded again",
    }

    def run(display: Display) -> str:
        def progress(unit: UnitState) -> None:
            display.note(unit.words)

        with HostConnection(host) as connection:
            ended = service.act(connection, service.Action(name), now=False, progress=progress)
        if not ended.ok:
            raise not_started(host.name, ended)
        return f"{host.name}: stopped" if name == "stop" else f"{host.name}: ready"

    return Prepared(
        f"{name} {host.name}",
        _shell(["kdops", name, host.name], host),
        f"{host.name}: {effects[name]}",
        [f"systemctl {name} {host.unit}"],
        run,
    )


def _command(name: str, host: Host) -> Prepared:
    arguments = [name, host.name, "-i", str(host.inventory)]

    def run(display: Display) -> str:
        code = follow([*COMMAND, *arguments], display.note)
        if name == "check" and code == ExitCode.REFUSED:
            raise KdopsError(
                "a deploy would be refused", cause="the failing checks above", remedy="the remedy of each"
            )
        if code:
            raise KdopsError(
                f"kdops {name} ended with exit code {code}", cause="see above", remedy="as it says"
            )
        return f"kdops {name} has ended"

    return Prepared(
        f"{name} {host.name}",
        _shell(["kdops", name, host.name], host),
        f"{host.name}: it is only read",
        [],
        run,
        ask=False,
    )


def _shell(command: Sequence[str], host: Host) -> str:
    return printable(shlex.join([*command, "-i", str(host.inventory)]))
