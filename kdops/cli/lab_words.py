"""A host of the lab that is down has other remedies than one in a rack."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdops.errors import KdopsError, UnreachableError

if TYPE_CHECKING:
    from kdops.lab.names import Lab

_BY_HAND = re.compile(r"\bssh\b|check (?:that )?the host|run it by hand")
"""Remedies that send a person to look at the machine; a deploy's promises are none."""


def better(error: KdopsError) -> KdopsError:
    """Return `error`, or what is so if it is about a host of this machine's lab that is down, off or cut."""
    from kdops.lab import names

    try:
        lab = names.current()
    except KdopsError:  # $KDOPS_LAB is no name: the lab's own commands say so
        return error
    words = " ".join((error.cause, *error.evidence))
    if str(lab.ssh_config) in words and not lab.ssh_config.exists():
        return UnreachableError(
            f"the lab {lab.name!r} is down", cause=f"{lab.ssh_config} is not there", remedy="kdops lab up"
        )
    if isinstance(error, UnreachableError) and _BY_HAND.search(error.remedy) and lab.ssh_config.exists():
        return _of_host(lab, error)
    return error


def _of_host(lab: Lab, error: KdopsError) -> KdopsError:
    from kdops.lab import machine, network
    from kdops.lab.control import complete

    name = error.title.partition(":")[0]
    parts = complete(lab)
    host = next((host for host in parts.hosts if host.name == name), None) if parts else None
    if host is None:
        return error
    if not machine.is_on(lab, host):
        what, remedy = "the lab host is switched off", f"kdops lab on {name}"
    elif not network.link_is_up(lab, host):
        what, remedy = "the lab host's link is cut", f"kdops lab heal {name}"
    else:
        return error
    return UnreachableError(f"{name}: {what}", cause=error.title, remedy=remedy)
