"""Raise a lab, change its hosts, take it down: under the lab's lock, so that two commands never collide."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kdops.errors import KdopsError, UsageError
from kdops.lab import access, cgroups, machine, network, requirements, rootfs
from kdops.lab.locking import locked
from kdops.lab.names import Lab, LabHost, host_range

Say = Callable[[str], None]


@dataclass(frozen=True)
class Complete:
    """What a finished `up` left: the hosts and the root file system they run on."""

    hosts: tuple[LabHost, ...]
    root: Path


def complete(lab: Lab) -> Complete | None:
    """Return what the lab consists of, or None if it is down or its `up` never finished."""
    try:
        note = json.loads((lab.folder / "complete.json").read_text())
    except FileNotFoundError:
        return None
    return Complete(host_range(note["hosts"]), Path(note["root"]))


def up(lab: Lab, count: int, say: Say, disk: str = machine.DISK) -> tuple[LabHost, ...]:
    """Raise the lab to at least `count` hosts, all on and connected; returns its hosts.

    Hosts that exist keep their disk. A lab that was never finished, or runs on an older root file system, is
    taken down first. Raises KdopsError if this machine lacks something or a host does not come up.
    """
    requirements.check()
    wanted = host_range(count)
    with _locked(lab, say):
        before = complete(lab)
        if before is None or not _alive(lab):
            before = None
            _teardown(lab)
        root = rootfs.ensure(lab, say)
        if before is not None and before.root != root:
            say(f"the lab {lab.name!r} runs on another build of its root file system: making it anew")
            before = None
            _teardown(lab)
            root = rootfs.ensure(lab, say)
        if before is None:
            access.make_key(access.client_key(lab))
            network.create_switch(lab)
        existing = before.hosts if before else ()
        hosts = existing if len(existing) >= count else wanted
        _note(lab, None)
        for host in hosts[len(existing) :]:
            machine.create(lab, host, disk)
        access.write(lab, hosts)
        for host in hosts:
            _power_on(lab, host, root)
        for host in hosts:
            say(f"{host.name} {host.address}: {machine.wait(lab, host)}")
        _note(lab, Complete(hosts, root))
    return hosts


def down(lab: Lab, say: Say) -> None:
    """Take the lab away whatever state it is in: processes, namespaces, cgroups, disks and its folder."""
    requirements.check()
    with _locked(lab, say):
        _teardown(lab)
        rootfs.sweep(lab.cache)


def kill(lab: Lab, name: str, say: Say) -> None:
    """Pull the host's plug."""
    with _host(lab, name, say) as (host, _):
        machine.kill(lab, host)


def power_on(lab: Lab, name: str, say: Say) -> str:
    """Switch the host on, link connected, and wait for it; returns systemd's word for its state."""
    with _host(lab, name, say) as (host, parts):
        _power_on(lab, host, parts.root)
        return machine.wait(lab, host)


def set_link(lab: Lab, name: str, say: Say, *, up: bool) -> None:
    """Cut or heal the host's link; the host itself goes on."""
    with _host(lab, name, say) as (host, _):
        network.set_link(lab, host, up=up)


def find(lab: Lab, name: str) -> tuple[LabHost, Complete]:
    """Return the host `name` of a lab that is up. Raises KdopsError if it is down, UsageError for another
    name.
    """
    parts = complete(lab)
    if parts is None or not _alive(lab):
        raise KdopsError(
            f"the lab {lab.name!r} is not up",
            cause="it was never started, was taken down, or its start was interrupted",
            remedy="kdops lab up",
        )
    for host in parts.hosts:
        if host.name == name:
            return host, parts
    names = [host.name for host in parts.hosts]
    raise UsageError(
        f"no lab host named {name!r}",
        cause=f"this lab has {', '.join(names)}",
        remedy=f"use one of these, or `kdops lab up {len(names) + 1}` for one more",
    )


@contextmanager
def _locked(lab: Lab, say: Say) -> Iterator[None]:
    path = lab.cache / "lab" / f"{lab.name}.lock"
    with locked(path, lambda: say(f"another kdops works on the lab {lab.name!r}; waiting")):
        yield


@contextmanager
def _host(lab: Lab, name: str, say: Say) -> Iterator[tuple[LabHost, Complete]]:
    requirements.check()
    find(lab, name)
    with _locked(lab, say):
        yield find(lab, name)


def _alive(lab: Lab) -> bool:
    """Whether the switch exists: a restart of this machine takes it away while the folder stays."""
    return (network.NAMESPACES / lab.switch).exists()


def _power_on(lab: Lab, host: LabHost, root: Path) -> None:
    if not machine.is_on(lab, host):
        machine.end(lab, host.name)  # a host that shut itself down leaves its cgroups
        machine.boot(lab, host, root)
    network.set_link(lab, host, up=True)


def _note(lab: Lab, parts: Complete | None) -> None:
    path = lab.folder / "complete.json"
    if parts is None:
        path.unlink(missing_ok=True)
        return
    partial = path.with_suffix(".tmp")
    partial.write_text(json.dumps({"hosts": len(parts.hosts), "root": str(parts.root)}))
    partial.replace(path)


def _teardown(lab: Lab) -> None:
    folders = (lab.folder / "hosts").glob("*")
    machines = {name.removeprefix(lab.prefix) for name in cgroups.existing(lab.prefix)}
    for name in sorted(machines | {folder.name for folder in folders}):
        machine.end(lab, name)
    network.destroy(lab)
    if lab.folder.exists():
        shutil.rmtree(lab.folder)
