"""Where kdops finds its own data files and where it keeps what can be rebuilt."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).parent


def data(name: str) -> Path:
    """Return the data folder `name`: beside the package in a checkout, inside it in a wheel."""
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def cache() -> Path:
    """Return the cache folder ($KDOPS_CACHE, else kdops/ under XDG's): only what can be rebuilt."""
    explicit = os.environ.get("KDOPS_CACHE")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kdops"


def state() -> Path:
    """Return the operator's own state (history): $KDOPS_STATE, else kdops/ under the XDG state folder."""
    explicit = os.environ.get("KDOPS_STATE")
    if explicit:
        return Path(explicit)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kdops"
