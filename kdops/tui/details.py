"""What the Host view asks for once, not every second: running settings, unit properties, security score."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kdops import fleet
from kdops.errors import UsageError
from kdops.fleet import SETTINGS, Host, redacted
from kdops.fleet.changes import applies
from kdops.fleet.settings import values
from kdops.fleet.values import as_text
from kdops.guard.layout import ON_HOST
from kdops.guard.smoke import compare
from kdops.host import HostConnection
from kdops.loose import document

UNIT_PROPERTIES = (
    "ActiveState,SubState,Result,NRestarts,MainPID,MemoryCurrent,TasksCurrent,CPUUsageNSec,Type,User,"
    "TimeoutStartUSec,TimeoutStopUSec,WatchdogUSec,Restart,KillMode,FragmentPath,DropInPaths,"
    "ActiveEnterTimestamp,InvocationID"
)
_SCORE = re.compile(r"exposure level for \S+: ([0-9.]+) (\w+)")


@dataclass(frozen=True)
class SettingRow:
    """One setting of the running release. origin: where the inventory has it; note: what is odd about it."""

    key: str
    value: str
    origin: str
    note: str = ""


@dataclass(frozen=True)
class Details:
    """security: systemd-analyze's score, 0 (closed) to 10, with its word; None where it has none."""

    settings: tuple[SettingRow, ...]
    unit: tuple[tuple[str, str], ...]
    security: str | None = None
    problem: str = ""


def fetch(host: Host, connection: HostConnection, server_info: Mapping[str, Any] | None) -> Details:
    """Ask the host. Raises UnreachableError."""
    shown = connection.run(["systemctl", "show", host.unit, "-p", UNIT_PROPERTIES]).text
    pairs = [line.partition("=")[::2] for line in shown.splitlines() if "=" in line]
    score = _SCORE.search(
        connection.run(["systemd-analyze", "security", "--no-pager", host.unit], timeout=15).text
    )
    manifest = document(connection.run(["cat", str(ON_HOST.current / "manifest.json")]).text)
    rows, problem = settings(host, manifest or None, server_info)
    order = {name: i for i, name in enumerate(UNIT_PROPERTIES.split(","))}
    return Details(
        settings=rows,
        unit=tuple(sorted(((k, v) for k, v in pairs if v), key=lambda pair: order.get(pair[0], 99))),
        security=f"{score[1]} {score[2]}" if score else None,
        problem=problem,
    )


def settings(
    host: Host, manifest: Mapping[str, Any] | None, server_info: Mapping[str, Any] | None
) -> tuple[tuple[SettingRow, ...], str]:
    """Return the running settings, and why there are none (pure)."""
    if manifest is None:
        return (), "nothing is deployed, or its manifest cannot be read"
    running = manifest.get("settings") or {}
    try:
        config = fleet.engine_config(host, str(manifest.get("profile")))
    except UsageError as error:
        config = None
        problem = f"{error.title}: {error.cause}"
    else:
        problem = ""
    wanted = redacted(values(config)) if config else {}
    expected = manifest.get("expected") or {}
    rows = []
    for name, row in SETTINGS.items():
        if name not in running or (config and not applies(name, values(config))):
            continue
        value, notes = running[name], []
        if config and wanted.get(name) != value:
            notes.append(f"the inventory says {as_text(wanted.get(name))}")
        # The probe carries a part of /server_info only: what is not in it says nothing.
        if row.reported and row.reported in expected and row.reported in (server_info or {}):
            notes += compare({row.reported: expected[row.reported]}, server_info or {})
        origin = str(config.origins[name]) if config else "-"
        rows.append(SettingRow(f"engine_{name}", as_text(value), origin, "; ".join(notes)))
    return tuple(sorted(rows, key=lambda one: (not one.note, one.origin == "default"))), problem
