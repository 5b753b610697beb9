"""What Ansible read, in JSON types: the boundary between its objects and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RawHost:
    """A host as Ansible sees it. origins: variable, or dotted path into one → (file, line)."""

    name: str
    groups: tuple[str, ...]
    variables: Mapping[str, Any]
    origins: Mapping[str, tuple[str, int | None]]


@dataclass(frozen=True)
class RawInventory:
    """All hosts of one inventory, and what Ansible had to say about the file."""

    hosts: tuple[RawHost, ...]
    warnings: tuple[str, ...]
