"""Find inventories, read them, and choose hosts by name."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdops import paths
from kdops.errors import UsageError
from kdops.fleet import cache
from kdops.fleet.gpus import BY_ID
from kdops.fleet.model import Host, Origin, SshTarget
from kdops.fleet.problems import Problem, nearest, refuse
from kdops.fleet.raw import RawHost

_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_SUFFIXES = (".yml", ".yaml", ".ini", ".toml")


@dataclass(frozen=True)
class Fleet:
    """All hosts of the inventories found. `warnings` are Ansible's words about the files."""

    inventories: tuple[Path, ...]
    hosts: tuple[Host, ...]
    warnings: tuple[str, ...] = ()

    def select(self, name: str) -> tuple[Host, ...]:
        """Return the host `name`, else the hosts of that group, else those of the inventory with that stem.

        Raises UsageError with the nearest names, or if two inventories hold a host of this name.
        """
        named = tuple(host for host in self.hosts if host.name == name)
        if len(named) > 1:
            raise UsageError(
                f"{name!r} is in several inventories",
                cause=", ".join(str(host.inventory) for host in named),
                remedy="choose one with -i INVENTORY",
            )
        found = (
            named
            or tuple(host for host in self.hosts if name in host.groups)
            or tuple(host for host in self.hosts if host.inventory.stem == name)
        )
        if found:
            return found
        known = sorted({n for host in self.hosts for n in (host.name, *host.groups, host.inventory.stem)})
        raise UsageError(
            f"no host, group or inventory is named {name!r}{nearest(name, known)}",
            cause=f"known names: {', '.join(known)}",
            remedy="use one of them, or name another inventory with -i; read: "
            + ", ".join(map(str, self.inventories)),
        )

    def chosen(self, names: Iterable[str] | None) -> tuple[Host, ...]:
        """Return the hosts that `names` select, each once, or all for none. Raises UsageError as `select`."""
        found = (host for name in names for host in self.select(name)) if names else self.hosts
        return tuple({(host.inventory, host.name): host for host in found}.values())

    def one(self, name: str) -> Host:
        """Return the single host meant by `name`; UsageError lists the candidates if there are several."""
        found = self.select(name)
        if len(found) > 1:
            names = ", ".join(host.name for host in found)
            raise UsageError(
                f"{name!r} means {len(found)} hosts",
                cause=f"they are: {names}",
                remedy=f"name one of them, for example {found[0].name}",
            )
        return found[0]


def load(inventory: Path | None = None) -> Fleet:
    """Read `inventory`, else $KDOPS_INVENTORY, else ./inventories, else the user's folder, else the packaged
    examples.

    A folder is read as one inventory per file in it, all with the folder's group_vars and host_vars. Raises
    UsageError if nothing is there, Ansible cannot read it, or a host's hardware or address is not usable.
    """
    files = _files(_where(inventory))
    hosts: list[Host] = []
    warnings: list[str] = []
    problems: list[Problem] = []
    for file in files:
        raw = cache.read(file)
        warnings += raw.warnings
        hosts += [_host(host, file, problems) for host in raw.hosts]
    if problems:
        raise refuse("the inventory does not describe its hosts well enough", problems)
    return Fleet(files, tuple(hosts), tuple(dict.fromkeys(warnings)))


def _where(inventory: Path | None) -> Path:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "kdops" / "inventories"
    named = inventory or (Path(value) if (value := os.environ.get("KDOPS_INVENTORY")) else None)
    if named is None:
        return next(
            (path for path in (Path("inventories"), config) if path.is_dir()), paths.data("inventories")
        )
    who = "-i names it" if inventory else "$KDOPS_INVENTORY names it"
    remedy = "name an Ansible inventory file, or a folder of them"
    try:
        if named.is_file() or named.is_dir():
            return named
        what = "is no file or folder" if named.exists() else "does not exist"
    except OSError as error:  # too long a name, a folder that may not be looked into
        what, who = "cannot be used", f"{who}: {error.strerror}"
    raise UsageError(f"inventory {str(named)[:300]} {what}", cause=who, remedy=remedy)


def _files(where: Path) -> tuple[Path, ...]:
    if where.is_file():
        return (where,)
    found = tuple(
        sorted(
            path
            for path in where.iterdir()
            if path.is_file() and path.suffix in _SUFFIXES and path.name != "ansible.cfg"
        )
    )
    if not found:
        raise UsageError(
            f"no inventory in {where}",
            cause=f"the folder holds no file ending in {', '.join(_SUFFIXES)}",
            remedy="write one, for example from the packaged ct200.yml",
        )
    return found


def _host(raw: RawHost, file: Path, problems: list[Problem]) -> Host:
    variables = raw.variables
    origins = {name: Origin(_relative(source, file), line) for name, (source, line) in raw.origins.items()}
    here = Origin(_relative(str(file.absolute()), file))
    if not _HOST_NAME.fullmatch(raw.name):
        problems.append(
            Problem(here, f"host name {raw.name[:60]!r} is not allowed; it must match {_HOST_NAME.pattern}")
        )
    gpu = variables.get("gpu", "cpu")
    if not isinstance(gpu, str) or gpu not in BY_ID:
        text = (
            f"host {raw.name}: gpu {gpu!r} is not known{nearest(str(gpu), BY_ID)}; known: {', '.join(BY_ID)}"
        )
        problems.append(Problem(origins.get("gpu", here), text))
        gpu = "cpu"
    count = variables.get("gpu_count", 0 if gpu == "cpu" else 1)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 64:
        text = f"host {raw.name}: gpu_count {count!r} is not allowed; a whole number from 0 to 64"
        problems.append(Problem(origins.get("gpu_count", here), text))
        count = 0
    return Host(
        name=raw.name,
        groups=raw.groups,
        inventory=file,
        ssh=_ssh(raw.name, variables, origins, here, problems),
        gpu=BY_ID[gpu],
        gpu_count=count,
        service=str(variables.get("engine_service") or raw.name),
        variables=variables,
        origins=origins,
    )


def _ssh(
    name: str,
    variables: Mapping[str, Any],
    origins: Mapping[str, Origin],
    here: Origin,
    problems: list[Problem],
) -> SshTarget:
    def first(*keys: str) -> Any:
        return next((variables[key] for key in keys if variables.get(key) is not None), None)

    port = first("ansible_port", "ansible_ssh_port")
    if port is not None and not (str(port).isdecimal() and 0 < int(port) < 65536):
        text = f"host {name}: ansible_port {port!r} is not a port; a whole number from 1 to 65535"
        problems.append(Problem(origins.get("ansible_port", here), text))
        port = None
    arguments: list[str] = []
    for key in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        try:
            arguments += shlex.split(str(variables.get(key) or ""))
        except ValueError as error:
            problems.append(Problem(origins.get(key, here), f"host {name}: {key}: {error}"))
    user = first("ansible_user", "ansible_ssh_user")
    key_file = first("ansible_private_key_file", "ansible_ssh_private_key_file")
    return SshTarget(
        address=str(first("ansible_host", "ansible_ssh_host") or name),
        user=None if user is None else str(user),
        port=None if port is None else int(port),
        key_file=None if key_file is None else str(key_file),
        common_args=tuple(arguments),
    )


def _relative(source: str, file: Path) -> str:
    """Name a file as the user did: inventory folder as given, and what lies below it."""
    root = file.parent
    try:
        return str(root / Path(source).resolve().relative_to(root.resolve()))
    except ValueError:
        return source
