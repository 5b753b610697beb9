"""`kdops check`: would it serve there? Said before the load."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kdops.cli.config import HOST, INVENTORY, JSON, PROFILE, SET, load, overrides
from kdops.cli.output import emit_folded, emit_json, say
from kdops.errors import ExitCode
from kdops.text import columns

if TYPE_CHECKING:
    from kdops.check import Report

OFFLINE = typer.Option(False, "--offline", help="Without the host: settings, models, options, memory.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)


def check(
    name: str = HOST,
    profile: str | None = PROFILE,
    changes: list[str] | None = SET,
    offline: bool = OFFLINE,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Check settings, models, memory and host, worst first; exit code 5 if a deploy would be refused.

    Nothing of the service is touched. Where several GPUs are free they are tested together for 20 s.
    """
    from kdops import check as checks
    from kdops.deploy import bundle
    from kdops.fleet.resolve import typed_config
    from kdops.host import HostConnection

    host = load(inventory).one(name)
    config = typed_config(host, profile, overrides(changes))
    if offline:
        found = checks.offline(config, host)
    else:
        with HostConnection(host) as connection:
            found = checks.online(config, host, bundle.build(config, host), connection)
    if as_json:
        rows = [
            {"check": row.check, "state": row.state, "found": row.found, "remedy": row.remedy}
            for row in found.rows
        ]
        emit_json({**dataclasses.asdict(found), "rows": rows, "refused": found.refused})
    else:
        head, *lines = table(found)
        for line in (head, *lines):
            emit_folded(line, head.index("FOUND"))
        say(f"{found.seconds:.1f} s; {_verdict(found, offline)}")
    if found.refused:
        raise typer.Exit(ExitCode.REFUSED)


def _verdict(found: Report, offline: bool) -> str:
    if found.refused:
        return "a deploy would be refused"
    if offline:
        return "nothing speaks against a deploy; the host was not looked at"
    return "a deploy would be tried"


def table(found: Report) -> list[str]:
    """Return the rows as lines, each with its remedy where it has one."""
    aligned = columns([("STATE", "CHECK", "FOUND"), *((r.state.value, r.check, r.found) for r in found.rows)])
    lines = [aligned[0]]
    for line, row in zip(aligned[1:], found.rows, strict=True):
        lines.append(line)
        if row.remedy:
            lines.append(f"    remedy: {row.remedy}")
    return lines
