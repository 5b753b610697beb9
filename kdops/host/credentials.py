"""The engine's API key: kept on the host, mode 0600, never shown and never written here."""

from __future__ import annotations

from kdops.guard.layout import ON_HOST
from kdops.host.connection import HostConnection


def api_key(connection: HostConnection) -> str | None:
    """Return the key of the host's service, or None if it has none."""
    path = str(ON_HOST.api_key(connection.host.service))
    script = 'test ! -e "$1" || exec cat -- "$1"'
    return connection.run(["sh", "-c", script, "sh", path], check=True).text.strip() or None
