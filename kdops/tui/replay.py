"""A recording played as if it happened now, at any speed, without hosts."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kdops.errors import UsageError
from kdops.tui import recording
from kdops.tui.feed import Event, Failed, Heard, Inbox, Lines

_PAUSE_S = 1.0


class Replay:
    """The feed of a recording. speed: seconds of the recording a second. forever: begin again at its end.

    Raises UsageError when `path` is no recording.
    """

    live = False

    def __init__(self, path: Path, speed: float = 1.0, *, forever: bool = False) -> None:
        self.hosts = recording.hosts(path)
        first = next(recording.events(path), None)
        if first is None:
            raise UsageError(
                f"{path} holds no event", cause="it ends after its first line", remedy="record for longer"
            )
        self._path, self._speed, self._forever = path, speed, forever
        self._first = first.at
        self._begun = time.monotonic()
        self._inbox = Inbox()
        self._stopped = threading.Event()

    def start(self) -> None:
        self._begun = time.monotonic()
        threading.Thread(target=self._play, name="replay", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._inbox.close()

    def now(self) -> float:
        return self._first + (time.monotonic() - self._begun) * self._speed

    def drain(self) -> list[Event]:
        return self._inbox.drain()

    def follow(self, host: str) -> None:
        """Nothing to do: a recording holds the journals that were followed in it."""

    def _play(self) -> None:
        for event in self._events():
            if self._stopped.wait(max(0.0, (event.at - self.now()) / self._speed)):
                return
            if isinstance(event, Lines):
                for entry in event.entries:
                    if not self._inbox.add(event.host, entry):
                        return
            else:
                self._inbox.put(event)

    def _events(self) -> Iterator[Heard | Failed | Lines]:
        shift, last = 0.0, self._first
        for turn in itertools.count():
            if turn and not self._forever:
                return
            for event in recording.events(self._path):
                last = event.at + shift
                yield replace(event, at=last)
            shift = last + _PAUSE_S - self._first
