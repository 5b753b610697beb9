"""What the Host view asks a host beside its samples: details once for each start, a diagnosis on demand."""

from __future__ import annotations

from collections.abc import Mapping

from kdops.fleet import Host
from kdops.host import HostConnection
from kdops.tui.background import Background, words
from kdops.tui.details import Details, fetch
from kdops.tui.findings import Diagnosis, look
from kdops.tui.sample import Sample

_RECORDED = Details((), (), problem="a recording holds no settings")


class Asking:
    """Asks in the background, over the host's own connection, and keeps the answers."""

    def __init__(
        self,
        background: Background,
        hosts: Mapping[str, Host],
        connections: Mapping[str, HostConnection],
    ) -> None:
        self._background, self._hosts, self._connections = background, hosts, connections
        self._details: dict[str, Details] = {}
        self._asked: dict[str, str] = {}
        self._diagnoses: dict[str, Diagnosis] = {}

    def details(self, name: str, shown: Sample) -> Details | None:
        """Return what is known of the host, None while it is asked; a new release or start is asked about."""
        host, connection = self._hosts.get(name), self._connections.get(name)
        if host is None or connection is None:
            return _RECORDED
        serving = f"{shown.row.release} {shown.status.unit.invocation}" if shown.status else ""
        if serving and self._asked.get(name) != serving:
            self._asked[name] = serving
            info = shown.status.engine.server_info if shown.status and shown.status.engine else None

            def then(found: Details | Exception) -> None:
                self._details[name] = (
                    found if isinstance(found, Details) else Details((), (), problem=words(found))
                )

            self._background.run(lambda: fetch(host, connection, info), then)
        return self._details.get(name)

    def diagnosis(self, name: str) -> Diagnosis | None:
        """Return the last diagnosis, None without one."""
        return self._diagnoses.get(name)

    def diagnose(self, name: str) -> bool:
        """Begin a diagnosis unless one goes on; False if there is no host to ask."""
        connection = self._connections.get(name)
        if connection is None:
            return False
        before = self._diagnoses.get(name)
        if before is None or not before.asking:
            self._diagnoses[name] = Diagnosis(asking=True)

            def then(found: Diagnosis | Exception) -> None:
                self._diagnoses[name] = (
                    found if isinstance(found, Diagnosis) else Diagnosis(problem=words(found))
                )

            self._background.run(lambda: look(connection), then)
        return True
