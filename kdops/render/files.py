"""What rendering returns: named contents with their modes, as plain frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RenderedFile:
    """One file. path: relative to the release folder; mode: its permission bits."""

    path: str
    content: bytes
    mode: int


@dataclass(frozen=True)
class FileSet:
    """The files of one release, manifest.json last; `manifest` is its content."""

    release_id: str
    files: tuple[RenderedFile, ...]
    manifest: Mapping[str, Any]
