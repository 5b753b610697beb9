"""`kdops status`, `start`, `stop`, `restart`, `logs`, `history`: day to day, over one SSH connection per
host."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kdops.cli.config import HOST, INVENTORY, JSON, load
from kdops.cli.output import emit, emit_json, say
from kdops.errors import ExitCode, KdopsError
from kdops.text import printable

if TYPE_CHECKING:
    from kdops.fleet import Host
    from kdops.host.status import UnitState

STATUS_DEADLINE_S = 6.0

HOSTS = typer.Argument(
    None, metavar="[NAME]...", help="Hosts, groups or inventories; all hosts if none is named."
)
NOW = typer.Option(False, "--now", help="Do not drain: running requests are cut off.")
FOLLOW = typer.Option(False, "-f", "--follow", help="Go on with each new line until Ctrl-C.")
LINES = typer.Option(
    None, "-n", "--lines", min=0, max=2**31 - 1, help="At most this many of the newest lines [default: 50]."
)
SINCE = typer.Option(
    None, "--since", help="From this time on, as journalctl takes it: '10 min ago', '09:00'."
)
GREP = typer.Option(
    None, "--grep", metavar="REGEX", help="Only messages that match (regular expression, RE2 syntax)."
)
RAW = typer.Option(False, "--raw", help="Keep the time that SGLang writes into its lines, too.")
JSON_LINES = typer.Option(False, "--json", help="One JSON object a line on stdout.")
COUNT = typer.Option(20, "-n", "--lines", min=0, help="At most this many of the newest deploys.")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (status, start, stop, restart, logs, history):
        app.command()(command)


def status(names: list[str] | None = HOSTS, inventory: Path | None = INVENTORY, as_json: bool = JSON) -> None:
    """Show every host: state, release, drift, load, tokens/s, acceptance length.

    Hosts are asked at once; exit code 3 if one of them cannot be reached. AL is of the last second
    with steps.
    """
    from kdops.cli.lab_words import better
    from kdops.cli.status_table import table
    from kdops.host import HostConnection, each, probe
    from kdops.observe.failure import Seen, failure_of
    from kdops.observe.row import row

    def ask(host: Host) -> Seen:
        with HostConnection(host) as connection:
            found = probe(connection, STATUS_DEADLINE_S)
            return Seen(found, failure_of(found, connection))

    hosts = load(inventory).chosen(names)
    found = [
        better(answer) if isinstance(answer, KdopsError) else answer
        for answer in each(hosts, ask, STATUS_DEADLINE_S)
    ]
    rows = [
        row(host.name, answer) if isinstance(answer, KdopsError) else row(host.name, *answer)
        for host, answer in zip(hosts, found, strict=True)
    ]
    if as_json:
        emit_json({"hosts": [dataclasses.asdict(row) for row in rows]})
    else:
        emit(table(rows))
    if failed := [answer for answer in found if isinstance(answer, KdopsError)]:
        raise typer.Exit(max(answer.code for answer in failed))


def start(name: str = HOST, inventory: Path | None = INVENTORY, as_json: bool = JSON) -> None:
    """Start the deployed service and wait until it is ready."""
    _act("start", name, inventory, now=False, as_json=as_json)


def stop(name: str = HOST, now: bool = NOW, inventory: Path | None = INVENTORY, as_json: bool = JSON) -> None:
    """Stop the service; requests that run are finished first, up to the drain deadline."""
    _act("stop", name, inventory, now=now, as_json=as_json)


def restart(
    name: str = HOST, now: bool = NOW, inventory: Path | None = INVENTORY, as_json: bool = JSON
) -> None:
    """Stop (draining) and start the service, and wait until it is ready."""
    _act("restart", name, inventory, now=now, as_json=as_json)


def logs(
    name: str = HOST,
    follow: bool = FOLLOW,
    lines: int | None = LINES,
    since: str | None = SINCE,
    grep: str | None = GREP,
    raw: bool = RAW,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON_LINES,
) -> None:
    """Show the service's journal; -f survives cut links and restarts of the host's sshd and journald."""
    from kdops.cli import log_text
    from kdops.host import HostConnection
    from kdops.host import follow as journal

    host = load(inventory).one(name)
    limit = lines if lines is not None else None if since else 50
    wanted = log_text.pattern(grep) if grep is not None else None
    query = journal.Query(host.unit, limit, since, wanted)
    try:
        if follow:
            for entry in journal.follow(host, query, say):
                emit(log_text.shown(entry, raw=raw, as_json=as_json))
        else:
            with HostConnection(host) as connection:
                found = journal.read(connection, query)
            for entry in found:
                emit(log_text.shown(entry, raw=raw, as_json=as_json))
            if wanted and not found and limit != 0:
                say("no line matches")
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def history(
    name: str = HOST, count: int = COUNT, inventory: Path | None = INVENTORY, as_json: bool = JSON
) -> None:
    """Show what was deployed when, by whom and why, and how it ended."""
    from kdops.host import HostConnection
    from kdops.host.audit import read

    with HostConnection(load(inventory).one(name)) as connection:
        deploys = read(connection)
    newest = deploys[max(0, len(deploys) - count) :]
    if as_json:
        emit_json({"history": [dataclasses.asdict(deploy) for deploy in newest]})
        return
    if not newest:
        say("no deploy is recorded on this host")
    for deploy in newest:
        emit(deploy.line)


def _act(action: str, name: str, inventory: Path | None, *, now: bool, as_json: bool) -> None:
    from kdops.deploy.why import not_started
    from kdops.host import HostConnection, service

    host = load(inventory).one(name)
    told: list[str] = []

    def progress(unit: UnitState) -> None:
        if told[-1:] != [unit.words]:
            told.append(unit.words)
            say(f"{host.name}: {printable(unit.words)}")

    try:
        with HostConnection(host) as connection:
            ended = service.act(connection, service.Action(action), now=now, progress=progress)
    except KeyboardInterrupt:
        say(f"{host.name}: no longer watching; the {action} goes on: see kdops status {host.name}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if not ended.ok:
        raise not_started(host.name, ended)
    if action == "stop" and host.gpu.id != "cpu":
        _name_holders(host)
    if as_json:
        emit_json({"host": host.name, "action": action, "unit": dataclasses.asdict(ended.unit)})
    elif action == "stop":
        emit(f"{host.name}: stopped" + (", drain deadline passed" if ended.unit.exit_status == 75 else ""))
    else:
        emit(f"{host.name}: ready")


def _name_holders(host: Host) -> None:
    """Wait until the driver has given the GPUs' memory back; say who holds it still."""
    from kdops.deploy import guard_call
    from kdops.host import HostConnection

    asked = ("free-gpus", "--unit", host.unit, "--seconds", "30")
    with contextlib.suppress(KdopsError), HostConnection(host) as connection:
        answer = guard_call.call(connection, *asked, timeout=60) or {}
        for words in answer.get("holders", []):
            say(f"{host.name}: {words}")
