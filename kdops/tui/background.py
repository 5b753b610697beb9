"""Work in daemon threads whose results the screen picks up: nothing waits, and nothing holds up the exit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

from kdops.errors import KdopsError

T = TypeVar("T")


class Background:
    """Runs work elsewhere; `deliver`, called on the screen's thread, hands the results on."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def run(self, work: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        """Run `work()` in a thread; `then` gets its result or its error."""

        def task() -> None:
            try:
                result: T | Exception = work()
            except Exception as error:  # handed to the screen
                result = error
            self._done.put(lambda: then(result))

        threading.Thread(target=task, daemon=True).start()

    def later(self, call: Callable[[], None]) -> None:
        """Have `call` made on the screen's thread (from any thread)."""
        self._done.put(call)

    def deliver(self) -> None:
        """Make the calls that are due."""
        while True:
            try:
                call = self._done.get_nowait()
            except queue.Empty:
                return
            call()


def words(error: Exception) -> str:
    """Return in one line why work failed."""
    if isinstance(error, KdopsError):
        return f"{error.title}: {error.cause}"
    return f"{type(error).__name__}: {error}"
