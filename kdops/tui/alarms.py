"""What must catch the eye: thresholds for colours, and the one alarm of a host. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kdops.host.status import GpuSample, HostStatus
from kdops.observe.row import Row
from kdops.throttle import POWER_CAP

Level = Literal["ok", "warning", "critical"]
_CRITICAL_STATES = ("failed", "unhealthy", "restarting", "unreachable", "error")


@dataclass(frozen=True)
class Alarm:
    """Something to look at now."""

    level: Level
    text: str


@dataclass(frozen=True)
class Threshold:
    """From `warning` and from `critical` on a value has that level."""

    warning: float
    critical: float

    def level(self, value: float | None) -> Level:
        if value is None or value < self.warning:
            return "ok"
        return "critical" if value >= self.critical else "warning"


TEMPERATURE = Threshold(80, 88)
"""°C of a GPU; data-centre parts begin to slow down between 85 and 90."""

KV_USE = Threshold(0.80, 0.95)
"""Share of the KV pool; above it SGLang retracts requests."""

GPU_MEMORY = Threshold(0.97, 0.995)
"""Share of a GPU's memory: an engine takes nearly all of it by design."""


def state_level(state: str) -> Level:
    """Return how bad a state of `kdops status` is."""
    if state in _CRITICAL_STATES or state.startswith("unit "):
        return "critical"
    return "ok" if state == "running" else "warning"


def throttle_level(gpu: GpuSample) -> Level:
    """Return how bad it is that the clocks are held down: a plain power cap belongs to the load."""
    return "warning" if gpu.throttle == (POWER_CAP.words,) else "critical"


def worst(status: HostStatus, shown: Row, kv_use: float | None, restarted: bool) -> Alarm | None:
    """Return the alarm that matters most, or None."""
    found = []
    if state_level(shown.state) == "critical":
        found.append(Alarm("critical", shown.notes[0] if shown.notes else shown.state))
    if restarted:
        found.append(Alarm("critical", f"restarted by itself ({shown.restarts} times in all)"))
    for gpu in status.gpus:
        level = TEMPERATURE.level(gpu.temperature)
        if level != "ok":
            found.append(Alarm(level, f"GPU {gpu.index} at {gpu.temperature:.0f} °C"))
        if gpu.throttle:
            found.append(Alarm(throttle_level(gpu), f"GPU {gpu.index}: {gpu.throttle[-1]}"))
    level = KV_USE.level(kv_use)
    if level != "ok" and kv_use is not None:
        found.append(Alarm(level, f"KV pool {kv_use:.0%} full"))
    if shown.drift:
        found.append(Alarm("warning", f"drift: {shown.drift[0]}"))
    if status.outcome and status.outcome.failure and shown.state != "loading":
        found.append(Alarm("warning", f"last deploy {status.outcome.result}"))
    order = {"critical": 0, "warning": 1}
    return min(found, key=lambda alarm: order[alarm.level], default=None)
