"""Live hosts: one SSH connection each, a thread that samples, and one that follows the journal if asked."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from kdops.errors import KdopsError, UnreachableError
from kdops.fleet import Host
from kdops.host import HostConnection
from kdops.host.audit import Deploy, read
from kdops.host.failures import HostKeyError
from kdops.host.follow import Query, follow
from kdops.host.sampler import reports
from kdops.serving.metrics import SHOWN
from kdops.tui.feed import Event, Failed, Heard, Inbox, Said, Warned
from kdops.tui.recording import Recorder

BACKOFF_S = (1.0, 2.0, 5.0, 10.0, 30.0)
FIRST_LINES = 2000
Better = Callable[[KdopsError], KdopsError]
"""What is known of an error where the hosts are this machine's lab."""


class Live:
    """The feed of real hosts. Threads are daemons: a host that does not answer never holds up the exit."""

    live = True

    def __init__(
        self,
        hosts: Sequence[Host],
        interval: float = 1.0,
        recorder: Recorder | None = None,
        timeout: float | None = None,
        better: Better = lambda error: error,
    ) -> None:
        self.hosts = tuple(host.name for host in hosts)
        self.connections: Mapping[str, HostConnection] = {
            host.name: HostConnection(host, timeout) for host in hosts
        }
        self._interval = interval
        self._recorder = recorder
        self._better = better
        self._inbox = Inbox()
        self._stopped = threading.Event()
        self._followed: set[str] = set()

    def start(self) -> None:
        for name in self.hosts:
            self._run(self._sample, name)

    def stop(self) -> None:
        self._stopped.set()
        self._inbox.close()

    def now(self) -> float:
        return time.time()

    def drain(self) -> list[Event]:
        events = self._inbox.drain()
        if self._recorder:
            try:
                self._recorder.write(events)
            except OSError as error:
                self._recorder = None
                events.append(Warned(f"recording stopped: {error.strerror or error}"))
        return events

    def follow(self, host: str) -> None:
        if host not in self._followed:
            self._followed.add(host)
            self._run(self._follow, host)

    def _run(self, work: Callable[[str], None], name: str) -> None:
        threading.Thread(target=work, args=(name,), name=f"{work.__name__} {name}", daemon=True).start()

    def _sample(self, name: str) -> None:
        connection, failures = self.connections[name], 0
        while not self._stopped.is_set():
            try:
                usual = usual_load(read(connection))
                for document in reports(connection, self._interval, SHOWN):
                    if self._stopped.is_set():
                        return
                    failures = 0
                    self._inbox.put(Heard(name, time.time(), document, usual))
            except KdopsError as error:
                self._inbox.put(Failed(name, time.time(), self._better(error)))
            self._stopped.wait(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1

    def _follow(self, name: str) -> None:
        connection = self.connections[name]
        query = Query(connection.host.unit, FIRST_LINES)

        def note(text: str) -> None:
            self._inbox.put(Said(name, text))

        failures = 0
        while not self._stopped.is_set():
            try:
                for entry in follow(connection.host, query, note, shared=connection):
                    if not self._inbox.add(name, entry):
                        return
            except HostKeyError as error:
                note(f"{error.title}: {error.remedy}")
                return
            except UnreachableError as error:
                note(f"{error.title}: {error.cause}")
            self._stopped.wait(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1


def usual_load(deploys: Sequence[Deploy]) -> float | None:
    """Return the seconds a start usually took in earlier deploys, None without one."""
    took = [deploy.seconds["starting"] for deploy in deploys if deploy.result == "committed"
            and "starting" in deploy.seconds]  # fmt: skip
    return statistics.median(took) if took else None
