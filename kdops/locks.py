"""The exact pins of the engine's Python environment, and the digest that names the environment on a host."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kdops import paths
from kdops.errors import UsageError

_CHECKOUT = Path(__file__).parent.parent / "engine" / "locks"


def lock_folder() -> Path:
    """Return the folder of the shipped locks: package data in a wheel, engine/locks in a checkout."""
    packaged = paths.data("locks")
    return packaged if packaged.is_dir() else _CHECKOUT


def lock_file(kind: str) -> Path:
    """Return the shipped lock `kind` ("cpu" or "cuda"). Raises UsageError for any other name."""
    known = sorted(path.stem for path in lock_folder().glob("*.txt"))
    if kind not in known:
        raise UsageError(
            f"no engine lock named {kind!r}",
            cause=f"kdops ships these locks: {', '.join(known) or 'none'}",
            remedy="set engine_lock to one of them",
        )
    return lock_folder() / f"{kind}.txt"


def lock_digest(path: Path) -> str:
    """Return 12 hex digits of the SHA-256 of the lock's bytes: the folder name under /opt/kdops/venvs.

    Raises UsageError if the lock cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise UsageError(
            f"cannot read the engine lock {path}",
            cause=error.strerror or str(error),
            remedy="use one of the shipped locks, or install kdops again",
        ) from error
