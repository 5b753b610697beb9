"""What a lab is called, and what its parts are called: everything it makes carries its prefix."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from kdops import paths
from kdops.errors import UsageError

MAX_HOSTS = 64
SWITCH_ADDRESS = "10.77.0.1"
_LAB_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")


@dataclass(frozen=True)
class LabHost:
    """One host: lab3 has the address 10.77.0.13 in its lab's own network."""

    index: int

    @property
    def name(self) -> str:
        return f"lab{self.index}"

    @property
    def address(self) -> str:
        return f"10.77.0.{10 + self.index}"


@dataclass(frozen=True)
class Lab:
    """A lab's name and where it lies; labs share nothing but the cached root file system."""

    name: str
    cache: Path

    @property
    def folder(self) -> Path:
        """Keys, disks, ssh_config and inventory; `down` removes it."""
        return self.cache / "lab" / self.name

    @property
    def prefix(self) -> str:
        """Start of every network namespace, cgroup and machine name of this lab.

        These names are the machine's, the folder is a cache's: labs of one name in two caches must not meet.
        """
        return f"kdops-{self.name}-{hashlib.sha256(bytes(self.cache)).hexdigest()[:6]}-"

    @property
    def switch(self) -> str:
        """The network namespace with the bridge; clients enter it to reach the hosts."""
        return f"{self.prefix}switch"

    def machine(self, host: LabHost) -> str:
        """Name of the host's network namespace, cgroup and nspawn machine."""
        return self.prefix + host.name

    def host_folder(self, host: LabHost) -> Path:
        return self.folder / "hosts" / host.name

    def image(self, host: LabHost) -> Path:
        """The host's writable disk, a sparse ext4 image."""
        return self.host_folder(host) / "disk.img"

    @property
    def ssh_config(self) -> Path:
        """The file that makes `ssh -F FILE lab0` work."""
        return self.folder / "ssh_config"

    @property
    def inventory(self) -> Path:
        return self.folder / "inventory" / "lab.yml"


def current() -> Lab:
    """Return the lab that $KDOPS_LAB names (default "lab"), kept in the cache folder.

    Raises UsageError if the name cannot be part of namespace and machine names.
    """
    name = os.environ.get("KDOPS_LAB") or "lab"
    cache = paths.cache().absolute()
    if not _LAB_NAME.fullmatch(name):
        raise UsageError(
            f"$KDOPS_LAB is not a lab name: {name!r}",
            cause="a lab name is a lower-case letter, then up to 15 lower-case letters or digits",
            remedy="set KDOPS_LAB to such a name, or unset it",
        )
    if any(char in str(cache) for char in ',:\\"\n'):
        raise UsageError(
            f"the cache folder cannot hold a lab: {cache}",
            cause='an overlay mount takes no path with , : \\ " or a line break',
            remedy="set KDOPS_CACHE to a folder without these characters",
        )
    return Lab(name, cache)


def host_range(count: int) -> tuple[LabHost, ...]:
    """Return the first `count` hosts. Raises UsageError unless 1 <= count <= 64."""
    if not 1 <= count <= MAX_HOSTS:
        raise UsageError(
            f"a lab has 1 to {MAX_HOSTS} hosts, not {count}",
            cause=f"hosts are addressed 10.77.0.10 to 10.77.0.{9 + MAX_HOSTS}",
            remedy="ask for fewer hosts" if count > MAX_HOSTS else "ask for at least one host",
        )
    return tuple(LabHost(index) for index in range(count))
