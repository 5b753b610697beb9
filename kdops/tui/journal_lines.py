"""The newest lines of one journal, and which of them match: numbered, so that a place stays. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import re2

from kdops.host.journal import Entry

MOST = 100_000
_SLACK = 10_000
_Row = tuple[str, float, str, int, str, int | None, str]
"""An entry's fields. Python's collector passes over a plain tuple of these; 100,000 objects stop it, and with
it the screen, for a twentieth of a second every few seconds."""


class Mode(StrEnum):
    """How a filter is read."""

    EXACT = "exact"
    FUZZY = "fuzzy"
    REGEX = "regex"


@dataclass(frozen=True)
class Filter:
    """exact: the text anywhere; fuzzy: its characters in order; regex: RE2's, linear in the line.

    Capitals count if there is one. priority: syslog's, 0 to 7; entries above it are left out.
    """

    text: str = ""
    mode: Mode = Mode.EXACT
    priority: int = 7

    def problem(self) -> str:
        """Return why the regular expression is none, else ""."""
        try:
            _ = self.pattern
        except re2.error as error:
            told = error.args[0]
            return told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        except UnicodeEncodeError:
            return "it is not UTF-8"
        return ""

    def matcher(self) -> Callable[[str, int], bool]:
        """Return the test of a message and its priority; a broken regular expression matches nothing."""
        if self.problem():
            return lambda message, of: False
        search, priority = self.pattern.search, self.priority
        if not self.text:
            return lambda message, of: of <= priority
        if self.mode is Mode.REGEX:  # a lone surrogate is no text for RE2
            return lambda message, of: (
                of <= priority and search(message.encode(errors="replace").decode()) is not None
            )
        return lambda message, of: of <= priority and search(message) is not None

    @property
    def pattern(self) -> re.Pattern[str] | re2._Regexp[str]:
        """The filter as a regular expression. Raises re2.error, UnicodeEncodeError for what is no text."""
        capitals = any(c.isupper() for c in self.text)
        if self.mode is Mode.REGEX:
            options = re2.Options()
            options.log_errors, options.case_sensitive = False, capitals
            return re2.compile(self.text, options)
        flags = 0 if capitals else re.IGNORECASE
        if self.mode is Mode.FUZZY:
            # From the beginning and in one way only, so that it cannot take for ever.
            return re.compile(r"\A" + "".join(f"[^{re.escape(c)}]*{re.escape(c)}" for c in self.text), flags)
        return re.compile(re.escape(self.text), flags)


@dataclass
class JournalLines:
    """At least the newest MOST entries, each with a number that never changes; `matching` are numbers.

    A new filter is worked through with `work`, newest first.
    """

    filter: Filter = field(default_factory=Filter)
    first: int = 0
    matching: list[int] = field(default_factory=list)
    _rows: list[_Row] = field(default_factory=list)
    _unread: int = 0

    def __post_init__(self) -> None:
        self._matches = self.filter.matcher()

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Entry]:
        return (Entry(*row) for row in self._rows)

    @property
    def end(self) -> int:
        """The number that the next entry gets."""
        return self.first + len(self._rows)

    @property
    def pending(self) -> int:
        """How many entries the filter has still to be held against."""
        return max(0, self._unread - self.first)

    def entry(self, number: int) -> Entry | None:
        """Return the entry of that number, None if it has been dropped."""
        at = number - self.first
        return Entry(*self._rows[at]) if 0 <= at < len(self._rows) else None

    def add(self, new: Sequence[Entry]) -> None:
        """Append entries; the oldest go once there are more than MOST (and some)."""
        number, matches = self.end, self._matches
        self._rows.extend(
            (e.cursor, e.time, e.message, e.priority, e.identifier, e.pid, e.invocation) for e in new
        )
        self.matching.extend(number + i for i, e in enumerate(new) if matches(e.message, e.priority))
        if len(self._rows) > MOST + _SLACK:
            gone = len(self._rows) - MOST
            del self._rows[:gone]
            self.first += gone
            del self.matching[: bisect_left(self.matching, self.first)]

    def refilter(self, new: Filter) -> None:
        """Begin with another filter; nothing matches until `work` has run."""
        self.filter, self._matches = new, new.matcher()
        self.matching.clear()
        self._unread = self.end

    def work(self, most: int) -> None:
        """Hold the filter against at most `most` entries that were there before it, newest first."""
        if not self.pending:
            return
        start = max(self.first, self._unread - most)
        part = self._rows[start - self.first : self._unread - self.first]
        found = [start + i for i, row in enumerate(part) if self._matches(row[2], row[3])]
        self.matching[:0] = found
        self._unread = start
