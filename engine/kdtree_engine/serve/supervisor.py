"""The launcher's thread: looks at the engine once a second and tells systemd."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psutil
import sdnotify

from kdtree_engine.page import Page, Phase
from kdtree_engine.serve.watch import Seen, Watch

LOOK_EVERY = 1.0


class Supervisor:
    """Owns the notification socket.

    `answers` returns whether the HTTP side's loop ran since the last call.
    """

    def __init__(
        self,
        page: Page,
        *,
        phase_limit: float,
        watchdog_seconds: float | None,
        answers: Callable[[], bool],
    ) -> None:
        self._page = page
        self._answers = answers
        self._notifier = sdnotify.SystemdNotifier()
        os.environ.pop("NOTIFY_SOCKET", None)  # SGLang's processes have nothing to say to systemd
        self._pause = min(LOOK_EVERY, watchdog_seconds / 4) if watchdog_seconds else LOOK_EVERY
        self._watch = Watch(time.monotonic(), phase_limit=phase_limit)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kdtree-supervisor", daemon=True)
        self.draining: Callable[[], str] | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def tell(self, *assignments: str) -> None:
        """Send to systemd now (sd_notify(3)); without systemd this does nothing."""
        self._notifier.notify("\n".join(assignments))

    def phases(self) -> str:
        """`imports 9.8 s, weights 2.1 s, ...`: where the start's time went."""
        return ", ".join(
            f"{phase.label} {seconds:.1f} s" for phase, seconds in self._page.phase_seconds().items()
        )

    def look(self) -> None:
        """Look once and send what follows from it."""
        self.tell(*self._watch.look(time.monotonic(), self._see()))

    def _run(self) -> None:
        while not self._stopped.wait(self._pause):
            self.look()

    def _see(self) -> Seen:
        page, phase = self._page, Phase(self._page.phase)
        cpu, read = _work() if phase is not Phase.SERVING else (0.0, 0)
        return Seen(
            phase=phase,
            cpu_seconds=cpu,
            read_bytes=read,
            turns=page.turns,
            running=page.running,
            queued=page.queued,
            steps=page.steps,
            accepted=page.accepted,
            answering=phase is not Phase.SERVING or self._answers(),
            draining=self.draining() if self.draining else None,
        )


def _work() -> tuple[float, int]:
    """CPU seconds and bytes read by this process tree, without this thread's own."""
    own = psutil.Process()
    cpu, read = -time.thread_time(), 0
    for process in (own, *own.children(recursive=True)):
        try:
            times, io = process.cpu_times(), process.io_counters()
        except psutil.Error:
            continue
        cpu += times.user + times.system
        read += io.read_chars
    return cpu, read
