"""One journal entry, from `journalctl -o json` (systemd.journal-fields(7), "Journal JSON Format")."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

FIELDS = "MESSAGE,PRIORITY,SYSLOG_IDENTIFIER,_PID,_SYSTEMD_INVOCATION_ID,INVOCATION_ID"

_LAST_SECOND = 253_402_214_400.0  # of the year 9999; a torn clock must not break the display


@dataclass(frozen=True)
class Entry:
    """One line of the journal. time: seconds since the epoch, the host's clock. priority: syslog's 0 to 7."""

    cursor: str
    time: float
    message: str
    priority: int = 6
    identifier: str = ""
    pid: int | None = None
    invocation: str = ""

    def same_as(self, cursor: str) -> bool:
        """True if `cursor` names this entry, also when the entry has moved to another journal file since."""
        return _identity(self.cursor) == _identity(cursor)


def parse(line: bytes) -> Entry | None:
    """Return the entry in one line of JSON, or None if it is none (a torn line, a word of journalctl)."""
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("__CURSOR"), str):
        return None
    pid, priority = _whole(raw.get("_PID")), _whole(raw.get("PRIORITY"))
    return Entry(
        cursor=raw["__CURSOR"],
        time=min((_whole(raw.get("__REALTIME_TIMESTAMP")) or 0) / 1e6, _LAST_SECOND),
        message=_text(raw.get("MESSAGE")),
        priority=6 if priority is None or priority > 7 else priority,
        identifier=_text(raw.get("SYSLOG_IDENTIFIER")),
        pid=pid,
        invocation=_text(raw.get("_SYSTEMD_INVOCATION_ID") or raw.get("INVOCATION_ID")),
    )


def entries(pieces: Iterable[bytes]) -> Iterator[Entry]:
    """Yield the entries in a stream cut into pieces of any size; an unfinished last line is dropped."""
    rest: list[bytes] = []
    for piece in pieces:
        *lines, tail = piece.split(b"\n")
        for line in lines:
            entry = parse(b"".join([*rest, line]))
            rest.clear()
            if entry:
                yield entry
        rest.append(tail)


def _identity(cursor: str) -> tuple[str, ...]:
    # s= and i= number an entry within a file family; b=, m=, t=, x= belong to the entry itself.
    parts = dict(part.partition("=")[::2] for part in cursor.split(";"))
    return tuple(parts.get(key, "") for key in "bmtx") if parts.get("b") else (cursor,)


def _text(value: Any, *, repeated: bool = False) -> str:
    """Text is a string; other bytes an array of numbers; a repeated field an array of those."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        if all(isinstance(cell, int) and 0 <= cell <= 255 for cell in value):
            return bytes(value).decode(errors="replace")
        return "" if repeated else "\n".join(_text(cell, repeated=True) for cell in value)
    return "" if value is None else str(value)


def _whole(value: Any) -> int | None:
    text = value if isinstance(value, str) else ""
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text, re.ASCII) else None
