"""What the host is asked around a leg: recorded answers through the parsers."""

from __future__ import annotations

import json

import pytest

from kdops.bench.host_checks import foreign_work, suppressions

pytestmark = pytest.mark.unit
UNIT = "kdtree-ct200.service"


def test_only_the_engines_own_unit_may_compute() -> None:
    ours = f"431, 1092, python3, 0::/system.slice/{UNIT}"
    theirs = "977, 20480, /usr/bin/python3, 0::/user.slice/user-1000.slice/session-3.scope"
    assert foreign_work([ours], UNIT) == []
    assert foreign_work([ours, theirs, ""], UNIT) == ["process 977 (/usr/bin/python3, 20480 MiB)"]
    assert foreign_work(["978, [N/A], , "], UNIT) == ["process 978 (unknown, [N/A] MiB)"]


def test_journald_tells_whose_lines_it_dropped() -> None:
    lines = [
        json.dumps({"MESSAGE": f"Suppressed 213 messages from {unit}"}) for unit in (UNIT, "cron.service")
    ]
    assert suppressions([*lines, "no json", "[]", json.dumps({"MESSAGE": None})], UNIT) == [
        f"Suppressed 213 messages from {UNIT}"
    ]
