"""`kdops tui`: the live dashboard."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from kdops.cli.config import INVENTORY, load
from kdops.cli.lab_words import better
from kdops.cli.output import emit
from kdops.errors import UsageError

NAMES = typer.Argument(
    None, metavar="[NAME]...", help="Hosts, groups or inventories; all hosts if none is named."
)
WRITE = typer.Option(
    False, "--write", help="Let actions change hosts; without it the dashboard only watches."
)
ONCE = typer.Option(False, "--once", help="Print one frame as text and exit.")
RECORD = typer.Option(None, "--record", metavar="FILE", help="Write everything that is seen to a new file.")
REPLAY = typer.Option(None, "--replay", metavar="FILE", help="Play a recording; no host is asked.")
SPEED = typer.Option(1.0, "--speed", min=0.01, max=10_000, help="Of the replay: seconds of it in a second.")
VIEW = typer.Option("fleet", "--view", help="Begin with fleet, host, journal or ab.")
THEME = typer.Option(None, "--theme", help="kdops-dark, kdops-light, kdops-contrast, or one of Textual's.")
INTERVAL = typer.Option(1.0, "--interval", min=0.2, max=3600, help="Seconds between two looks at a host.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(tui)


def tui(
    names: list[str] | None = NAMES,
    write: bool = WRITE,
    once: bool = ONCE,
    record: Path | None = RECORD,
    replay: Path | None = REPLAY,
    speed: float = SPEED,
    view: str = VIEW,
    theme: str | None = THEME,
    interval: float = INTERVAL,
    inventory: Path | None = INVENTORY,
) -> None:
    """Watch all hosts live: fleet, one host, its journal, A/B runs; with --write, act on them.

    Reads only unless --write is given; leaving it never touches a service. ? shows the keys. AL is of the
    last second with steps.
    """
    from kdops.tui import start

    if replay and (record or names or write):
        raise UsageError(
            "--replay plays a recording",
            cause="it goes with no host, --record or --write",
            remedy="leave them out",
        )
    if not once and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "kdops tui needs a terminal",
            cause="stdin or stdout is a file, a pipe or closed",
            remedy="run it in a terminal; kdops tui --once prints one frame as text",
        )
    if replay:
        dashboard = start.recorded(replay, speed, view=view, theme=theme)
    else:
        hosts = load(inventory).chosen(names)
        dashboard = start.live(hosts, interval, record, better, write=write, view=view, theme=theme)
    if once:
        emit(start.frame(dashboard))
    else:
        start.settle()
        dashboard.run()
