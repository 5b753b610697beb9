"""GPU samples of a leg, and whether two arms ran at the same clocks.

A clock gap voids a comparison only if something throttled the GPUs: heat, a hardware slowdown, a power brake.
Under a plain power cap it is part of what the arm does, and is reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdops import throttle
from kdops.bench.results import Finding, GpuUse
from kdops.loose import number
from kdops.throttle import Kind, Reason

GAP = 0.02
"""A relative difference of the SM clock that is reported; smaller ones cannot leave the ±2 % margin."""


@dataclass(frozen=True)
class GpuSample:
    """One GPU in one second. clock, max_clock: SM, MHz; power, limit: W; memory: MiB; busy: 0 to 1.

    What the driver does not tell is None.
    """

    index: int
    clock: float | None
    max_clock: float | None
    power: float | None
    limit: float | None
    temperature: float | None
    busy: float | None
    memory: float | None
    reasons: tuple[Reason, ...]


def parse(line: str) -> GpuSample | None:
    """Return the sample in one line of nvidia-smi (fields as in `load.gpu_watch`), None if it is none."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 9 or not cells[0].isdecimal():
        return None
    clock, max_clock, power, limit, temperature, busy, memory = map(number, cells[1:8])
    share = None if busy is None else busy / 100
    return GpuSample(
        int(cells[0]), clock, max_clock, power, limit, temperature, share, memory, throttle.reasons(cells[8])
    )


def summary(lines: Sequence[str]) -> GpuUse | None:
    """Return what the GPUs of a leg did, None without a readable line.

    Clocks are those of seconds with work in them: an idle GPU clocks down, and says nothing of the arm.
    """
    samples = [sample for sample in map(parse, lines) if sample]
    if not samples:
        return None
    working = [s for s in samples if s.busy] or samples
    given = {reason for s in working for reason in s.reasons}
    clocks = [s.clock for s in working if s.clock is not None]
    return GpuUse(
        gpus=len({s.index for s in samples}),
        samples=len(samples),
        sm_clock=statistics.median(clocks) if clocks else None,
        max_clock=max((s.max_clock for s in samples if s.max_clock is not None), default=None),
        power=_mean([s.power for s in working]),
        power_limit=max((s.limit for s in samples if s.limit is not None), default=None),
        temperature=max((s.temperature for s in samples if s.temperature is not None), default=None),
        busy=_mean([s.busy for s in samples]),
        memory=max((s.memory for s in samples if s.memory is not None), default=None),
        reasons=tuple(reason.words for reason in throttle.REASONS if reason in given),
        throttled=any(reason.kind is Kind.TROUBLE for reason in given),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def gap_findings(arms: Mapping[str, Sequence[GpuUse | None]]) -> tuple[Finding, ...]:
    """Compare the clocks of each arm with the first one's. arms: name → its legs."""
    clocks = {
        name: statistics.fmean(found)
        for name, legs in arms.items()
        if (found := [leg.sm_clock for leg in legs if leg and leg.sm_clock])
    }
    baseline = next(iter(arms), "")
    if baseline not in clocks:
        return ()
    findings = []
    for name, clock in clocks.items():
        gap = clock / clocks[baseline] - 1
        if abs(gap) <= GAP:
            continue
        legs = [leg for arm in (baseline, name) for leg in arms[arm] if leg]
        reasons = sorted({reason for leg in legs for reason in leg.reasons})
        throttled = any(leg.throttled for leg in legs)
        said = f"{clock:.0f} MHz against {clocks[baseline]:.0f} MHz ({gap:+.1%}), "
        said += f"reasons: {', '.join(reasons) or 'none given'}"
        said += "" if throttled else "; no throttling, so it is part of what the arm does"
        findings.append(Finding("the GPU clocks differ between the arms", said, name, fatal=throttled))
    return tuple(findings)
