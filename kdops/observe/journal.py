"""Evidence from a file that journalctl wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kdops.diagnose import journal
from kdops.diagnose.evidence import Evidence
from kdops.errors import UsageError

_PIECE = 1 << 16


def from_journal(path: Path) -> Evidence:
    """Read a journal: `journalctl -o json`, or any plain form. "-" is stdin."""
    absent = dict.fromkeys(("inventory", "metrics", "server_info", "measurement", "unit"), "a journal alone")
    try:
        if str(path) == "-":
            return Evidence(journal=journal.read(pieces(sys.stdin.buffer)), absent=absent)
        with path.open("rb") as file:
            return Evidence(journal=journal.read(pieces(file)), absent=absent)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            cause=error.strerror or str(error),
            remedy="name a file written by journalctl -o json or journalctl -o cat",
        ) from error


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file of any size, a piece at a time."""
    while piece := file.read(_PIECE):
        yield piece
