"""The unit as `systemctl show` and its control group's cpu.stat tell it."""

from __future__ import annotations

import re

from kdops.diagnose.evidence import Unit
from kdops.host.status import UnitState
from kdops.loose import digits

_SPANS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_SPAN = re.compile(r"([0-9.]{1,12})(us|ms|s|min|h)")


def unit(text: str, drift: tuple[str, ...] = ()) -> Unit:
    """Return the unit in lines of key=value (systemctl show) and key value (cpu.stat, cgroup v2)."""
    told: dict[str, str] = {}
    for line in text.splitlines():
        key, mark, value = line.partition("=")
        if not mark:
            key, mark, value = line.partition(" ")
        if mark and key.strip() not in told:
            told[key.strip()] = value.strip()
    quota = _seconds(told.get("CPUQuotaPerSecUSec", ""))
    periods, stopped = digits(told.get("nr_periods")), digits(told.get("nr_throttled"))
    load = told.get("LoadState", "loaded")
    return Unit(
        active=told.get("ActiveState", ""),
        restarts=digits(told.get("NRestarts")) or 0,
        cpu_quota=quota,
        throttled=min(1.0, (stopped or 0) / periods) if quota is not None and periods else None,
        drift=drift,
        since=told.get("StateChangeTimestamp", ""),
        absence="" if load == "loaded" else UnitState(told.get("Id", "the unit"), load).absence,
    )


def _seconds(text: str) -> float | None:
    """Return systemd's time span as seconds a second, None for infinity or no span."""
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip():
        return None
    try:
        return sum(float(number) * _SPANS[unit] for number, unit in parts)
    except ValueError:
        return None
