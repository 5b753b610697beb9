"""The machine under the engine: GPUs, CPU, other users."""

from __future__ import annotations

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.finding import Confidence, Finding, Severity
from kdops.diagnose.rules.attention import verify_not_split
from kdops.throttle import POWER_CAP, REASONS, Kind

_IDLE = 0.6
_THROTTLED = 0.05
_CAP = POWER_CAP.words
_TROUBLE = {one.words for one in REASONS if one.kind is Kind.TROUBLE}


def host_bound(e: Evidence) -> tuple[Finding, ...]:
    """GPUs wait for the host between kernels."""
    busy = [gpu for gpu in e.gpus if gpu.busy is not None and gpu.working]
    if not busy or max(gpu.busy or 0 for gpu in busy) >= _IDLE or verify_not_split(e):
        return ()
    mean = sum(gpu.busy or 0 for gpu in busy) / len(busy)
    return (
        Finding(
            "host-bound",
            "the GPUs wait for the host",
            Severity.SLOW,
            Confidence.PROBABLE,
            "between two kernels the GPU idles: Python, scheduling or a copy on the host takes the time",
            "turn CUDA graphs on (engine_cuda_graph_decode: full) where the profile allows it; leave the CPU "
            "to the engine",
            f"kdops report {e.host}",
            (f"busy {mean:.0%} while requests run ({busy[0].source})",),
            ("attention over a long context: step time does not grow with it",),
        ),
    )


def clocks(e: Evidence) -> tuple[Finding, ...]:
    """Clocks held down."""
    hard = [(gpu, [r for r in gpu.reasons if r in _TROUBLE]) for gpu in e.gpus]
    hard = [(gpu, reasons) for gpu, reasons in hard if reasons]
    capped = [gpu for gpu in e.gpus if _CAP in gpu.reasons and gpu.clock and gpu.max_clock]
    capped = [gpu for gpu in capped if (gpu.clock or 0) < 0.9 * (gpu.max_clock or 0)]
    if not hard and not capped:
        return ()
    seen = [
        f"{gpu.source}: {', '.join(reasons)}"
        + (f", {gpu.clock:.0f} of {gpu.max_clock:.0f} MHz" if gpu.clock and gpu.max_clock else "")
        + (f", {gpu.temperature:.0f} °C" if gpu.temperature else "")
        for gpu, reasons in (hard or [(gpu, [_CAP]) for gpu in capped])
    ]
    return (
        Finding(
            "clocks-throttled",
            "GPU clocks are held down",
            Severity.SLOW if hard else Severity.NOTE,
            Confidence.CERTAIN,
            "heat, a hardware slowdown or a power brake lowers the clocks"
            if hard
            else "the power limit lowers the clocks: that is part of what this load does on this GPU",
            "look after cooling and power supply; a comparison made meanwhile is void"
            if hard
            else "compare arms under the same limit",
            "",
            tuple(seen),
        ),
    )


def foreign_load(e: Evidence) -> tuple[Finding, ...]:
    """Requests of somebody else during a measurement."""
    doubts = e.measurement.doubts if e.measurement else ()
    seen = [text for title, text in doubts if title.startswith("foreign requests came in")]
    if not seen:
        return ()
    return (
        Finding(
            "foreign-load",
            "somebody else used the engine during the measurement",
            Severity.WRONG,
            Confidence.CERTAIN,
            "the engine counted more requests than the measurement sent, so its times hold a foreign load",
            "keep other clients away and measure again",
            f"kdops bench {e.host}",
            tuple(seen[:5]),
        ),
    )


def cpu_limited(e: Evidence) -> tuple[Finding, ...]:
    """The unit may use less CPU than it needs."""
    unit = e.unit
    if not unit or unit.cpu_quota is None or (unit.throttled is not None and unit.throttled < _THROTTLED):
        return ()
    seen = [f"CPUQuota={unit.cpu_quota:.0%}"]
    if unit.throttled is not None:
        seen.append(f"stopped in {unit.throttled:.0%} of the scheduler's periods")
    seen += [path for path in unit.drift if "CPUQuota" in path]
    return (
        Finding(
            "cpu-limited",
            "a CPU quota slows the engine down",
            Severity.SLOW,
            Confidence.CERTAIN if unit.throttled is not None else Confidence.PROBABLE,
            "the unit has a CPU quota, and the engine is stopped whenever it is used up",
            "remove it on the host: systemctl set-property kdtree-… CPUQuota= (or the drop-in that sets it)",
            f"kdops plan {e.host}",
            tuple(seen),
            ("the drafter: AL does not depend on the CPU",),
        ),
    )
