"""Keeps the lease while a deploy runs, from a thread with a connection of its own."""

from __future__ import annotations

import threading
from types import TracebackType

from kdops.deploy.guard_call import call
from kdops.errors import KdopsError
from kdops.fleet import Host
from kdops.host import HostConnection


class Heartbeat:
    """Renews the lease of transaction `id_` every third of it. A lost link is retried: the lease decides."""

    def __init__(self, host: Host, id_: str, lease: float) -> None:
        self._host, self._id, self._lease = host, id_, lease
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="kdops-heartbeat")

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=2)

    def _beat(self) -> None:
        with HostConnection(self._host) as connection:
            while not self._stop.wait(self._lease / 3):
                try:
                    call(connection, "heartbeat", "--id", self._id, "--seconds", str(self._lease))
                except KdopsError:
                    continue
