"""`kdops deploy`, `plan`, `rollback`, `adopt`, `prune`: what changes a host."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kdops.cli.config import HOST, INVENTORY, JSON, PROFILE, SET, load, overrides, repeated
from kdops.cli.output import emit, emit_json, say
from kdops.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from kdops.deploy.bundle import Bundle
    from kdops.deploy.client import Deployed, Options
    from kdops.fleet import EngineConfig, Host

WHY = typer.Option("", "--why", metavar="TEXT", help="Reason, for the audit line and whoever meets the lock.")
CHECK = typer.Option(
    False, "--check", help="Change nothing; show what would change (with --diff: line by line)."
)
DIFF = typer.Option(False, "--diff", help="With --check: show the lines that differ.")
TO = typer.Option(
    None, "--to", metavar="RELEASE", help="A kept release; the one before the serving one unless given."
)
UNIT = typer.Argument(..., metavar="UNIT", help="The hand-written service, for example sglang.service.")
OUT_FILE = typer.Option(None, "--out", help="Write the variables to this file instead of stdout.")
DELETE = typer.Option(False, "--delete", help="Delete what is listed.")
OUT_FOLDER = typer.Option(..., "--out", help="Folder for the release, the guard and the request.")
LEASE = typer.Option(..., "--lease", min=1, help="Seconds that a silent client keeps the lock.")
READY = typer.Option(..., "--ready-timeout", min=1, help="Seconds a start may take.")


def register(app: typer.Typer) -> None:
    """Add the commands; `bundle` is for the playbooks."""
    for command in (deploy, plan, rollback, adopt, prune):
        app.command()(command)
    app.command(hidden=True)(bundle)


def deploy(
    name: str = HOST,
    profile: str | None = PROFILE,
    changes: list[str] | None = SET,
    why: str = WHY,
    check: bool = CHECK,
    diff: bool = DIFF,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Deploy as one transaction: lock, upload, switch, start, smoke test, commit; any failure goes back.

    Ctrl-C before the switch undoes it; after the switch the guard on the host finishes it.
    """
    from kdops.check import before_deploy
    from kdops.cli.progress_bar import display
    from kdops.deploy import bundle as bundles
    from kdops.deploy import client
    from kdops.fleet.memory import foresee
    from kdops.observe import record

    if diff and not check:
        raise UsageError(
            "--diff needs --check",
            cause="a deploy changes the host; --diff shows what would change",
            remedy=f"kdops deploy {name} --check --diff, or leave --diff out to deploy",
        )
    host, config = _configured(name, profile, changes, inventory)
    new = bundles.build(config, host)
    limits = client.options(host, why, config.start_timeout)
    if check:
        _show_check(host, new, limits, with_diff=diff, as_json=as_json)
        return
    with display() as shown:
        done = client.deploy(host, new, limits, shown, before_deploy(host, config, new, repeated(changes)))
    record.deployed(host, new, done.outcome, say)
    _show(host, done, as_json)
    foreseen = foresee(config, host)
    if words := pool(done.outcome, foreseen.tokens if foreseen else None):
        say(words)


def plan(
    name: str = HOST,
    profile: str | None = PROFILE,
    changes: list[str] | None = SET,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Show what a deploy would change and what was changed by hand (exit code 8); nothing is touched."""
    from kdops.deploy import bundle as bundles
    from kdops.deploy import client
    from kdops.deploy.plan import NOT_RUNNING

    host, config = _configured(name, profile, changes, inventory)
    made = client.make_plan(host, bundles.build(config, host))
    if as_json:
        emit_json({"host": host.name, **dataclasses.asdict(made)})
    else:
        if open_ := made.holder:
            say(
                f"{open_['who']} deploys {open_['release']} now (phase {open_['phase']}): drift is not judged"
            )
        lines = [*made.changes, *(f"drift: {line}" for line in made.drift)]
        lines += [f"in all: {made.effect}"] if made.effect else []
        emit("\n".join(lines) or f"nothing to change: {made.release} serves on {host.name}")
    if made.drift:
        words = ["kdops", "deploy", host.name, *(("--profile", profile) if profile else ())]
        again = shlex.join([*words, *repeated(changes)])
        say(f"remedy: {again} puts the host right; what is to stay goes into the inventory before")
        raise typer.Exit(ExitCode.DRIFT)
    if made.changes == (NOT_RUNNING,):
        say(f"remedy: kdops start {host.name}")


def rollback(
    name: str = HOST,
    to: str | None = TO,
    why: str = WHY,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Deploy the committed release before the serving one again: the same transaction, nothing to upload."""
    from kdops.cli.progress_bar import display
    from kdops.deploy import client, rollback

    host = load(inventory).one(name)
    target = rollback.target(host, to)
    say(f"rolling back to {target.release}")
    reason = f"rollback: {why}" if why else "rollback"
    with display() as shown:
        done = client.deploy(host, target, client.options(host, reason), shown)
    _show(host, done, as_json)


def adopt(
    name: str = HOST, unit: str = UNIT, out: Path | None = OUT_FILE, inventory: Path | None = INVENTORY
) -> None:
    """Read a hand-written service and write the inventory values it stands for; nothing is changed there."""
    from kdops.deploy.adopt import read

    host = load(inventory).one(name)
    text = read(host, unit).text()
    if out is None:
        emit(text)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("x") as file:  # host_vars are written by people: never replaced
            file.write(text + "\n")
    except OSError as error:
        raise UsageError(
            f"cannot write {out}", cause=error.strerror or str(error), remedy="name a new file you may write"
        ) from error
    say(f"wrote {out}; the next `kdops deploy {host.name}` stops and disables {unit}")


def prune(
    name: str = HOST, delete: bool = DELETE, inventory: Path | None = INVENTORY, as_json: bool = JSON
) -> None:
    """Show (with --delete: free) releases and environments that no kept release names."""
    from kdops.deploy import guard_call
    from kdops.host import HostConnection

    host = load(inventory).one(name)
    with HostConnection(host) as connection:
        found = guard_call.call(connection, "prune", *(["--delete"] if delete else []), timeout=300)
    report = found or {"items": [], "bytes": 0, "deleted": delete}
    if as_json:
        emit_json(report)
        return
    if not report["items"]:
        emit(f"nothing to free on {host.name}")
        return
    for item in report["items"]:
        emit(f"{item['bytes'] / 1e6:10.1f} MB  {item['path']}")
    emit(f"{report['bytes'] / 1e6:10.1f} MB  {'freed' if report['deleted'] else 'in all; --delete frees it'}")


def bundle(
    name: str = HOST,
    out: Path = OUT_FOLDER,
    lease: float = LEASE,
    ready_timeout: float = READY,
    profile: str | None = PROFILE,
    inventory: Path | None = INVENTORY,
) -> None:
    """Write what playbooks/deploy.yml uploads."""
    from kdops.deploy import bundle as bundles
    from kdops.deploy.client import Options, request

    host, config = _configured(name, profile, None, inventory)
    new = bundles.build(config, host)
    bundles.write(new, out, request(new, host, Options("ansible-playbook", lease, ready_timeout)))
    say(f"release {new.release}")


def _configured(
    name: str, profile: str | None, changes: list[str] | None, inventory: Path | None
) -> tuple[Host, EngineConfig]:
    from kdops import fleet

    host = load(inventory).one(name)
    return host, fleet.engine_config(host, profile, overrides(changes))


def _show(host: Host, done: Deployed, as_json: bool) -> None:
    from kdops.deploy.ending import summary

    outcome: Any = done.outcome
    if as_json:
        emit_json({"host": host.name, "changed": outcome is not None, **dataclasses.asdict(done)})
    elif outcome is None:
        emit(f"{host.name}: nothing to change, release {done.plan.release} serves")
    else:
        emit(f"{host.name}: {summary(outcome, done.plan.serving)}")


def pool(outcome: Mapping[str, Any] | None, foreseen: int | None) -> str:
    """Return what the KV pool holds and how far the prediction was off; "" where it is not told."""
    held = ((outcome or {}).get("smoke") or {}).get("kv_tokens")
    if not isinstance(held, int) or held <= 0:
        return ""
    off = f"; {foreseen:,} were predicted ({(foreseen - held) / held:+.1%})" if foreseen else ""
    return f"KV pool: {held:,} tokens{off}"


def _show_check(host: Host, new: Bundle, options: Options, *, with_diff: bool, as_json: bool) -> None:
    from kdops.deploy import client

    made = client.make_plan(host, new)
    diffs = [line for event in client.check(host, new, options) for line in event.diff]
    if as_json:
        emit_json({"host": host.name, **dataclasses.asdict(made), "diff": diffs})
        return
    emit("\n".join([*made.changes, *(f"drift: {line}" for line in made.drift)]) or "nothing would change")
    if with_diff and diffs:
        emit("\n".join(diffs))
