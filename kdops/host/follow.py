"""Read and follow a unit's journal: no line lost or doubled by cut links or restarts of sshd and journald.

The place is kept as the cursor of the last entry seen through the same filter. A new connection reads from
that entry on, itself included, and drops it when it comes first: `--after-cursor` skips an entry blindly
(systemd 252), also when the cursor's own entry has been vacuumed away. Patterns are matched here, so that
every entry moves the cursor on and none depends on how the host's journalctl was built.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kdops.errors import KdopsError, UnreachableError, UsageError
from kdops.host.connection import HostConnection
from kdops.host.failures import HostKeyError
from kdops.host.journal import FIELDS, Entry, entries

if TYPE_CHECKING:
    from kdops.fleet import Host

_BACKOFF_S = (0.2, 0.5, 1.0, 2.0, 5.0)


class Pattern(Protocol):
    """What chooses messages; it must end for any of them, a host may write what it likes."""

    def search(self, message: str, /) -> bool: ...


@dataclass(frozen=True)
class Query:
    """What to read. lines: at most that many of the newest (None: all); since: as journalctl(1) takes it."""

    unit: str
    lines: int | None = None
    since: str | None = None
    pattern: Pattern | None = None

    def matches(self, entry: Entry) -> bool:
        """True if the entry's message has the pattern, or there is none."""
        return self.pattern is None or self.pattern.search(entry.message)

    def argv(self, *options: str) -> list[str]:
        """Return the journalctl command; --all because longer fields would be null."""
        since = [f"--since={self.since}"] if self.since else []
        return [*_JOURNALCTL, f"--unit={self.unit}", *since, *options]


_JOURNALCTL = ("journalctl", "--quiet", "--no-pager", "--output=json", "--all", f"--output-fields={FIELDS}")


def read(connection: HostConnection, query: Query) -> list[Entry]:
    """Return the newest entries that match, oldest first. Raises UsageError for a bad `since`."""
    return _newest(connection, query)[0]


def follow(
    host: Host, query: Query, note: Callable[[str], None], shared: HostConnection | None = None
) -> Iterator[Entry]:
    """Yield the entries of read(), then each new one as it is written, for ever.

    shared: a connection of the caller's to use, which stays open. A broken link is told through `note` and
    mended. Raises UnreachableError only if the first connection fails or the host shows another key on a
    later one.
    """
    with contextlib.nullcontext(shared) if shared else HostConnection(host) as connection:
        # Whatever is written after this moment is new, should there be no entry yet to go on from.
        started = connection.run(["date", "+%s"], check=True).text.strip()
        found, cursor = _newest(connection, query)
        yield from found
        failures = 0
        while True:
            where = f"--cursor={cursor}" if cursor else f"--since=@{started}"
            argv = [*_JOURNALCTL, f"--unit={query.unit}", "--follow", "--no-tail", where]
            try:
                for entry in entries(connection.stream(argv)):
                    if failures:
                        note(f"{host.name}: connected again")
                    failures = 0
                    if cursor and entry.same_as(cursor):
                        continue
                    cursor = entry.cursor
                    if query.matches(entry):
                        yield entry
                why = "journalctl ended"
            except HostKeyError:
                raise
            except KdopsError as error:
                why = error.cause if isinstance(error, UnreachableError) else f"journalctl: {error.cause}"
            if not shared:
                connection.close()
            if not failures:
                note(f"{host.name}: link lost ({why}); connecting again")
            time.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
            failures += 1


def _newest(connection: HostConnection, query: Query) -> tuple[list[Entry], str | None]:
    """Return the newest matching entries and the cursor of the newest entry of all."""
    try:
        return _all(connection, query) if query.pattern is None else _matching(connection, query)
    except KdopsError as error:
        if query.since and "timestamp" in error.cause:
            raise UsageError(
                f"--since {query.since!r} is no time",
                cause=error.cause,
                remedy="write it as journalctl takes it: '10 min ago', '09:00', '2026-01-31 12:00'",
            ) from None
        raise


def _all(connection: HostConnection, query: Query) -> tuple[list[Entry], str | None]:
    # One entry at least, for its cursor.
    limit = [] if query.lines is None else [f"--lines={max(query.lines, 1)}"]
    found = list(entries(connection.stream(query.argv(*limit))))
    return found if query.lines != 0 else [], found[-1].cursor if found else None


def _matching(connection: HostConnection, query: Query) -> tuple[list[Entry], str | None]:
    newest: str | None = None
    found: list[Entry] = []
    for entry in entries(connection.stream(query.argv("--reverse"))):
        newest = newest or entry.cursor
        if query.lines is not None and len(found) >= query.lines:
            break
        if query.matches(entry):
            found.append(entry)
    return found[::-1], newest
