"""What an inventory says about a host, as plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdops.fleet.gpus import Gpu


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a file ("inventories/ct200.yml"), "default", "--set" or "profile ddtree"."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return self.source if self.line is None else f"{self.source}:{self.line}"


DEFAULT = Origin("default")
COMMAND_LINE = Origin("--set")


@dataclass(frozen=True)
class SshTarget:
    """What `ssh -G` is asked for; one description feeds Ansible and fabric alike."""

    address: str
    user: str | None = None
    port: int | None = None
    key_file: str | None = None
    common_args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Host:
    """One host of one inventory. `variables` are Ansible's effective ones, those kdops reads with templates
    resolved.
    """

    name: str
    groups: tuple[str, ...]
    inventory: Path
    ssh: SshTarget
    gpu: Gpu
    gpu_count: int
    service: str
    variables: Mapping[str, Any]
    origins: Mapping[str, Origin]

    @property
    def unit(self) -> str:
        """The systemd unit of its service."""
        return unit_of(self.service)


def unit_of(service: str) -> str:
    """Return the systemd unit of a service that kdops deploys."""
    return f"kdtree-{service}.service"
