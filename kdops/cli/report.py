"""`kdops report`: one archive for an upstream issue."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kdops.cli.config import HOST, INVENTORY, load
from kdops.cli.output import emit, say
from kdops.errors import KdopsError, UsageError

if TYPE_CHECKING:
    from kdops.store import Store

OUT = typer.Option(None, "--out", help="File to write; kdops-report-HOST-TIME.tar.gz here unless given.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(name: str = HOST, out: Path | None = OUT, inventory: Path | None = INVENTORY) -> None:
    """Collect journal, settings, unit, stacks, GPU state and the last benchmark in one archive, secrets out.

    It can be attached to an issue as it is; look through it first all the same.
    """
    from kdops.host import HostConnection, archive
    from kdops.store import Store

    host = load(inventory).one(name)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = out or Path(f"kdops-report-{host.name}-{stamp}.tar.gz")
    _create(path)  # before the host is asked, which takes a while
    try:
        store = Store()
        bench = _bench(host.name, store)
        store.close()
        with HostConnection(host) as connection:
            found = archive.collect(connection, bench)
        path.write_bytes(archive.pack(host.name, found))
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise
    emit(str(path))
    for missing, why in sorted(found.missing.items()):
        say(f"without {missing}: {why}")
    say("secrets were taken out; look through it before you attach it to a public issue")


def _create(path: Path) -> None:
    """Create an empty file for the user alone. Raises UsageError if there is one, or it cannot be written."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write {path}",
        cause=error.strerror or str(error),
        remedy="name a new file that you may write: --out FILE",
    )


def _bench(host: str, store: Store) -> dict[str, Any] | None:
    """Return the newest measurement of the host that can be read, with its report.json."""
    from kdops.bench.stored import result
    from kdops.report.document import document

    for run in store.runs(host):
        try:
            told = document(result(run, store))
        except KdopsError:
            continue  # interrupted, damaged, or of a kdops that wrote it otherwise
        return {"id": run.id, "created": run.created, "state": run.state, "document": told}
    return None
