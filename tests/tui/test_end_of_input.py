"""What a command reads on a host ends with its last byte, not when a silent link is asked for an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from ssh_server import ssh_host

from kdops.host import connection
from kdops.host.connection import HostConnection

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_a_reader_sees_the_end_before_anything_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    # A reader that had to wait for its end would wait for ever.
    monkeypatch.setattr(connection, "ALIVE_INTERVAL_S", 3600.0)
    with ssh_host(tmp_path, "h", {}) as (host, _), HostConnection(host) as link:
        assert link.run(["wc", "-c"], stdin=b"x" * size, timeout=20.0).stdout.split() == [str(size).encode()]
