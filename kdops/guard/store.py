"""State that survives a pulled plug and a full disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kdops.errors import ExitCode, KdopsError
from kdops.guard.layout import Layout
from kdops.guard.model import State, from_json

_RESERVE = 256 * 1024


def fsync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replace `path` so that after a crash it holds the old or the new bytes (fsync of file and folder).

    Writers at once (a heartbeat takes no mutex) each have a temporary file of their own; the last one wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


class Store:
    """`txn.json` and `audit.ndjson`.

    A reserve file is given up when the disk is full, so that the end of a transaction can still be recorded.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._reserve = layout.state / ".reserve"

    def load(self) -> State:
        """Raises KdopsError when the document is unreadable: nothing is then changed."""
        try:
            raw = self._layout.transaction.read_bytes()
        except FileNotFoundError:
            return State()
        try:
            return from_json(json.loads(raw))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise KdopsError(
                "the transaction record on this host is unreadable",
                cause=f"{self._layout.transaction}: {type(error).__name__}: {error}",
                remedy="look at the file; with it moved away, kdops treats the next deploy as the first one",
                code=ExitCode.FAILED,
            ) from error

    def save(self, state: State) -> None:
        content = json.dumps(asdict(state), indent=1).encode()
        self._with_reserve(lambda: write_atomic(self._layout.transaction, content))

    def audit(self, line: dict[str, Any]) -> None:
        def append() -> None:
            with self._layout.audit.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

        self._with_reserve(append)

    def history(self) -> list[dict[str, Any]]:
        """Return the audit lines, oldest first; a line cut by a crash or that is no object is left out."""
        if not self._layout.audit.is_file():
            return []
        lines = []
        for raw in self._layout.audit.read_bytes().splitlines():
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict):
                lines.append(line)
        return lines

    def reserve(self) -> None:
        """Set disk space aside for the last words of a transaction (called when one opens)."""
        self._layout.state.mkdir(parents=True, exist_ok=True)
        if not self._reserve.exists():
            write_atomic(self._reserve, b"\0" * _RESERVE, 0o600)

    def _with_reserve(self, write: Any) -> None:
        try:
            write()
        except OSError as error:
            if error.errno != errno.ENOSPC or not self._reserve.exists():
                raise
            self._reserve.unlink()
            write()

    @contextmanager
    def exclusive(self, *, wait: bool = True) -> Iterator[bool]:
        """Hold the host's mutex; yields False when `wait` is off and another command holds it."""
        self._layout.state.mkdir(parents=True, exist_ok=True)
        with self._layout.mutex.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True
