"""Where events come from: an inbox that threads fill and the screen empties."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kdops.errors import KdopsError
from kdops.host.journal import Entry

MOST_WAITING = 50_000


@dataclass(frozen=True)
class Heard:
    """A probe's document from a host. usual: seconds a start takes there, if known."""

    host: str
    at: float
    document: Mapping[str, Any]
    usual: float | None = None


@dataclass(frozen=True)
class Failed:
    """A look at a host that failed."""

    host: str
    at: float
    error: KdopsError


@dataclass(frozen=True)
class Lines:
    """New journal entries of a host, oldest first."""

    host: str
    at: float
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Said:
    """Words about the link to a host."""

    host: str
    text: str


@dataclass(frozen=True)
class Warned:
    """Words that the user must see whatever the view."""

    text: str


Event = Heard | Failed | Lines | Said | Warned


class Feed(Protocol):
    """A source of events: live hosts or a recording."""

    hosts: tuple[str, ...]
    live: bool

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """Ask the threads to end; never waits for them."""

    def now(self) -> float:
        """The time, in seconds since the epoch, against which samples age."""

    def drain(self) -> list[Event]:
        """Return what came since the last call."""

    def follow(self, host: str) -> None:
        """Begin to follow the host's journal, unless that was done already."""


class Inbox:
    """Events and journal entries, handed over in the order they came. Threads wait while it is full."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._events: list[Event] = []
        self._entries: dict[str, list[Entry]] = {}
        self._waiting = 0
        self._closed = False

    def put(self, event: Event) -> None:
        """Add an event."""
        with self._changed:
            self._events.append(event)

    def add(self, host: str, entry: Entry) -> bool:
        """Add a journal entry, waiting while MOST_WAITING are here. False: closed, stop reading."""
        with self._changed:
            while self._waiting >= MOST_WAITING and not self._closed:
                self._changed.wait()
            self._entries.setdefault(host, []).append(entry)
            self._waiting += 1
            return not self._closed

    def drain(self) -> list[Event]:
        """Take everything out."""
        with self._changed:
            events, self._events = self._events, []
            found, self._entries = self._entries, {}
            self._waiting = 0
            self._changed.notify_all()
        return events + [Lines(host, time.time(), tuple(lines)) for host, lines in found.items()]

    def close(self) -> None:
        """Let no thread wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
