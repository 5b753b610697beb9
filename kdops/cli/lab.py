"""`kdops lab`: systemd hosts on this machine, for demos, tests and trying out faults."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

import typer

from kdops.cli.output import emit, emit_json, say

if TYPE_CHECKING:
    from kdops.lab.status import HostStatus

COMMAND = typer.Argument(None, metavar="[-- COMMAND...]", help="Run this instead of a shell.")
HOST = typer.Argument(..., metavar="HOST", help="A host of the lab: lab0, lab1, ...")

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Real systemd hosts on this machine (Debian, root). $KDOPS_LAB names the lab; labs do not meet.",
)


def register(app: typer.Typer) -> None:
    """Add `kdops lab`."""
    app.add_typer(group, name="lab")


@group.command()
def up(count: int = typer.Argument(1, metavar="[N]", help="How many hosts it has at least.")) -> None:
    """Raise the lab to N hosts; what it needs is built once and cached."""
    from kdops.lab import control, names

    lab = names.current()
    control.up(lab, count, say)
    emit(f"inventory  {lab.inventory}")
    emit(f"ssh        ssh -F {lab.ssh_config} lab0")


@group.command()
def down() -> None:
    """Take the lab away: hosts, disks, network. The cached root file system stays."""
    from kdops.lab import control, names

    control.down(names.current(), say)


@group.command()
def status(as_json: bool = typer.Option(False, "--json", help="One JSON document on stdout.")) -> None:
    """Show the hosts: power, link, SSH answer, disk."""
    from kdops.lab import names, requirements
    from kdops.lab import status as state

    requirements.check()
    seen = state.status(names.current())
    if as_json:
        document = dataclasses.asdict(seen)
        paths = ("folder", "root", "ssh_config", "inventory")
        emit_json({**document, **{key: document[key] and str(document[key]) for key in paths}})
        return
    if seen.root is None:
        say(f"the lab {seen.name!r} is down; `kdops lab up` raises it")
        return
    for host in seen.hosts:
        emit(_line(host))
    say(f"root file system: {seen.root}")


@group.command()
def kill(host: str = HOST) -> None:
    """Pull the plug of HOST; its disk and journal stay."""
    from kdops.lab import control, names

    control.kill(names.current(), host, say)


@group.command()
def on(host: str = HOST) -> None:
    """Switch HOST on again and wait until it answers."""
    from kdops.lab import control, names

    say(f"{host}: {control.power_on(names.current(), host, say)}")


@group.command()
def cut(host: str = HOST) -> None:
    """Cut the link of HOST; the host goes on."""
    from kdops.lab import control, names

    control.set_link(names.current(), host, say, up=False)


@group.command()
def heal(host: str = HOST) -> None:
    """Connect the link of HOST again."""
    from kdops.lab import control, names

    control.set_link(names.current(), host, say, up=True)


@group.command()
def shell(
    host: str = HOST,
    command: list[str] = COMMAND,
) -> None:
    """Open a shell on HOST over SSH, as root."""
    from kdops.lab import control, names, requirements

    requirements.check()
    lab = names.current()
    control.find(lab, host)
    os.execvp("ssh", ["ssh", "-F", str(lab.ssh_config), host, *(["--", *command] if command else [])])


def _line(host: HostStatus) -> str:
    power = "on " if host.powered else "off"
    link = "link " if host.link else "cut  "
    disk = (
        f"{host.disk_used / 2**20:.0f} of {host.disk_size / 2**20:.0f} MiB"
        if host.disk_used and host.disk_size
        else "-"
    )
    return f"{host.name:<6} {host.address:<12} {power} {link} {host.system or 'no answer':<10} disk {disk}"
