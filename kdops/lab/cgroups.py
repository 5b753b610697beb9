"""One cgroup per host in every mounted hierarchy: what is in it is the host, and killing it kills the host.

Works on cgroup v1, hybrid and v2 machines. Source: cgroups(7); systemd's CGROUP_DELEGATION.md.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kdops.errors import KdopsError

ROOT = Path("/sys/fs/cgroup")
_KILL_SECONDS = 30.0


@dataclass(frozen=True)
class HostCgroups:
    """Where the processes around the host go (keeper), and where nspawn and the host itself go (machine).

    On v2 they differ: a cgroup with processes of its own cannot hand controllers to the host's units below
    it.
    """

    keeper: tuple[Path, ...]
    machine: tuple[Path, ...]


def create(name: str) -> HostCgroups:
    """Make the cgroup `name` in every hierarchy: below the caller's own on v1, at the top on v2."""
    if (ROOT / "cgroup.controllers").exists():
        return _create_v2(ROOT / name)
    made = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        top = ROOT / (controllers.removeprefix("name=") or "unified")
        if not top.is_dir():
            continue
        folder = top / path.lstrip("/") / name
        folder.mkdir(exist_ok=True)
        if "cpuset" in controllers.split(","):  # an empty cpuset takes no process
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (folder / setting).write_text((folder.parent / setting).read_text())
            (folder / "cgroup.clone_children").write_text("1")
        made.append(folder)
    return HostCgroups(tuple(made), tuple(made))


def _create_v2(folder: Path) -> HostCgroups:
    for part in (folder, folder / "keeper", folder / "machine"):
        part.mkdir(exist_ok=True)
    for controller in (folder / "cgroup.controllers").read_text().split():
        with contextlib.suppress(OSError):  # one the machine withholds: the host does without
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    return HostCgroups((folder / "keeper",), (folder / "machine",))


def existing(prefix: str) -> tuple[str, ...]:
    """Return the names of the cgroups that start with `prefix`, whoever made them and wherever they lie."""
    return tuple(sorted({folder.name for folder in _find(lambda name: name.startswith(prefix))}))


def processes(name: str) -> frozenset[int]:
    """Return the ids of the processes in the cgroup `name` and below, in all hierarchies."""
    return frozenset(pid for folder in _named(name) for pid in _pids(folder))


def destroy(name: str) -> None:
    """Kill every process in the cgroup `name` and remove it. Raises KdopsError if one is there after 30 s."""
    deadline = time.monotonic() + _KILL_SECONDS
    while folders := list(_named(name)):
        for pid in {pid for folder in folders for pid in _pids(folder)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        removed = [_remove(folder) for folder in folders]
        if all(removed):
            return
        if time.monotonic() > deadline:
            stuck = sorted({pid for folder in folders for pid in _pids(folder)})
            raise KdopsError(
                f"cannot end the lab host {name}",
                cause=f"its processes do not die: {stuck}"
                if stuck
                else f"its cgroup stays busy: {folders[0]}",
                remedy="look at these processes (state D means a stuck disk), then run the command again",
            )
        time.sleep(0.01)


def _named(name: str) -> Iterable[Path]:
    return _find(lambda found: found == name)


def _find(wanted: Callable[[str], bool]) -> Iterable[Path]:
    # os.walk, not glob: a host's units come and go while we look, and a walk passes over what is gone
    for parent, names, _ in os.walk(ROOT):
        matches = [name for name in names if wanted(name)]
        names[:] = [name for name in names if name not in matches]
        yield from (Path(parent, name) for name in matches)


def _pids(folder: Path) -> Iterable[int]:
    for part, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            yield from map(int, Path(part, "cgroup.procs").read_text().split())


def _remove(folder: Path) -> bool:
    """Remove a cgroup and those below it; False while the kernel still counts a process in one."""
    try:
        for part, _, _ in os.walk(folder, topdown=False):
            Path(part).rmdir()
    except FileNotFoundError:
        return not folder.exists()
    except OSError:
        return False
    return True
