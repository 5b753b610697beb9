"""A session on disk, one JSON object a line: what each host said and when, to be played without hosts.

First line: {"kdops": "recording", "version": 1, "hosts": [...]}. Then {"t": seconds since the epoch,
"host": NAME} with one of "report" (the probe's document without settings), "error" ([title, cause, remedy,
code]), or "journal" (entries). Kinds that a version does not know are left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kdops.errors import ExitCode, KdopsError, UsageError
from kdops.files import require_regular
from kdops.host.journal import Entry
from kdops.tui.feed import Event, Failed, Heard, Lines

VERSION = 1
_END = 1e11  # seconds since the epoch: the year 5138; no NaN either
_LONGEST = 1 << 24
_MANIFEST = ("profile", "files", "release")


class Recorder:
    """Writes events to a new file as they come. Raises UsageError if the file is there or not writable."""

    def __init__(self, path: Path, hosts: Sequence[str]) -> None:
        try:
            self._file = path.open("x", encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"cannot record to {path}",
                cause=error.strerror or str(error),
                remedy="name a new file in a folder you may write to",
            ) from error
        self._line({"kdops": "recording", "version": VERSION, "hosts": list(hosts)})

    def write(self, events: Sequence[Event]) -> None:
        """Append events. Raises OSError when the disk is full."""
        for event in events:
            told: dict[str, Any]
            if isinstance(event, Heard):
                told = {"report": _trimmed(event.document), "usual": event.usual}
            elif isinstance(event, Failed):
                error = event.error
                told = {"error": [error.title, error.cause, error.remedy, int(error.code)]}
            elif isinstance(event, Lines):
                told = {"journal": [dataclasses.asdict(entry) for entry in event.entries]}
            else:
                continue
            self._line({"t": event.at, "host": event.host, **told})
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def _line(self, value: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(value, separators=(",", ":")) + "\n")


def hosts(path: Path) -> tuple[str, ...]:
    """Return the hosts of a recording. Raises UsageError if the file is none."""
    try:
        require_regular(path)  # it is read more than once
        with path.open(encoding="utf-8", errors="replace") as file:
            first = json.loads(file.readline(_LONGEST))
    except OSError as error:
        raise UsageError(
            f"cannot read {path}", cause=error.strerror or str(error), remedy="name a file of --record"
        ) from error
    except (ValueError, RecursionError):
        first = None
    if not isinstance(first, dict) or first.get("kdops") != "recording":
        raise UsageError(
            f"{path} is no recording",
            cause="its first line says nothing of kdops",
            remedy="make one with --record",
        )
    if first.get("version") != VERSION:
        raise UsageError(
            f"{path} is a recording of version {first.get('version')!r}",
            cause=f"this kdops plays version {VERSION}",
            remedy="play it with the kdops that made it",
        )
    names = first.get("hosts")
    return tuple(str(name) for name in names) if isinstance(names, list) else ()


def events(path: Path) -> Iterator[Heard | Failed | Lines]:
    """Yield the events in order; lines that are cut, damaged or unknown are left out."""
    with path.open(encoding="utf-8", errors="replace") as file:
        while line := file.readline(_LONGEST):
            if found := _event(line):
                yield found


def _event(line: str) -> Heard | Failed | Lines | None:
    try:
        raw = json.loads(line)
        host, at = str(raw["host"]), float(raw["t"])
        if not 0 <= at < _END:
            return None
        if "report" in raw:
            usual = raw.get("usual")
            return Heard(host, at, dict(raw["report"]), None if usual is None else float(usual))
        if "error" in raw:
            title, cause, remedy, code = raw["error"]
            return Failed(
                host, at, KdopsError(str(title), cause=str(cause), remedy=str(remedy), code=ExitCode(code))
            )
        return Lines(host, at, tuple(_entry(**entry) for entry in raw["journal"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _entry(
    *, cursor: Any, time: Any, message: Any, priority: Any, identifier: Any, pid: Any, invocation: Any
) -> Entry:
    """Return what `Recorder` wrote; TypeError and ValueError for anything else."""
    texts = (cursor, message, identifier, invocation)
    if not all(isinstance(text, str) for text in texts) or type(priority) is not int:
        raise TypeError
    if not 0 <= priority <= 7 or not 0 <= float(time) < _END or not (pid is None or type(pid) is int):
        raise ValueError
    return Entry(cursor, float(time), message, priority, identifier, pid, invocation)


def _trimmed(document: Mapping[str, Any]) -> Mapping[str, Any]:
    manifest = document.get("manifest")
    if not isinstance(manifest, dict):
        return document
    return {**document, "manifest": {key: manifest[key] for key in _MANIFEST if key in manifest}}
