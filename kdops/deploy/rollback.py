"""Which release a rollback goes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdops.deploy.bundle import Bundle
from kdops.deploy.guard_call import call
from kdops.errors import UsageError
from kdops.fleet import Host
from kdops.guard.layout import ON_HOST
from kdops.guard.model import ADOPTED
from kdops.host import HostConnection


def target(host: Host, release: str | None) -> Bundle:
    """Return the committed release named, else the one before the serving one, as a bundle without files.

    Raises UsageError when the host keeps no such release, UnreachableError.
    """
    with HostConnection(host) as connection:
        return choose(
            host.name, host.service, call(connection, "inspect", "--service", host.service), release
        )


def choose(host: str, service: str, report: Mapping[str, Any] | None, release: str | None) -> Bundle:
    """Pure part of `target`; report: the guard's `inspect`, None when kdops was never on the host."""
    report = report or {"committed": []}
    committed = report["committed"]
    older = committed[:-1]
    kept = ", ".join(entry["release"] for entry in older) or "none"
    chosen = [entry for entry in older if release in (None, entry["release"])]
    if not chosen:
        wanted = f"release {release}" if release else "no earlier release"
        raise UsageError(
            f"{host}: {wanted} to go back to" if not release else f"{host}: {wanted} is not kept",
            cause=f"kept before the serving one: {kept}",
            remedy=f"`kdops history {host}` lists the deploys; `kdops deploy {host}` makes a new one",
        )
    name = str(chosen[-1]["release"])
    if not name.startswith(ADOPTED) and name not in report.get("releases", [name]):
        raise UsageError(
            f"{host}: release {name} is no longer on the host",
            cause=f"its folder below {ON_HOST.releases} is gone",
            remedy=f"deploy its settings anew: kdops deploy {host} --profile PROFILE",
        )
    return Bundle(chosen[-1]["release"], chosen[-1]["unit"], service, None, None, None)
