"""Evidence from a file that journalctl wrote."""

from __future__ import annotations

import sys
from pathlib import Path

from kdops.diagnose import journal
from kdops.diagnose.evidence import Evidence
from kdops.errors import UsageError
from kdops.files import pieces, rest


def from_journal(path: Path) -> Evidence:
    """Read a journal: `journalctl -o json`, or any plain form. "-" is stdin."""
    absent = dict.fromkeys(("inventory", "metrics", "server_info", "measurement", "unit"), "a journal alone")
    try:
        source = rest(sys.stdin.buffer.read) if str(path) == "-" else pieces(path)
        read = journal.read(source)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read",
            cause=error.strerror or str(error),
            remedy="name a file written by journalctl -o json or journalctl -o cat",
        ) from error
    if not read.familiar:
        absent["journal"] = f"none of its {read.lines} lines is one that an engine or systemd writes"
    return Evidence(journal=read, absent=absent)
