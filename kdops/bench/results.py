"""What a measurement says: typed, frozen, without any I/O. `report` shows these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kdops.bench.workloads.sampling import Sampling
from kdops.errors import ExitCode


class Call(StrEnum):
    """What may be said of a candidate against the baseline."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Finding:
    """Something that a reader must know. fatal: no verdict with it. where: arm and leg."""

    title: str
    evidence: str
    where: str = ""
    fatal: bool = True


@dataclass(frozen=True)
class Comparison:
    """A candidate against the baseline. ratio, low, high: of tokens/s, 95 % Student-t interval.

    p: two-sided permutation test over the stated list of orders (secondary sets: t test, Holm-adjusted).
    smallest_p: the least that list can give. leg_sd: of log tokens/s. smallest_effect: seen with 80 % power.
    """

    call: Call
    ratio: float
    low: float | None
    high: float | None
    p: float | None
    smallest_p: float | None
    legs: tuple[int, int]
    leg_sd: float | None
    smallest_effect: float | None
    legs_for_5_percent: int | None
    why: str


GAP_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class SetRate:
    """One arm on one prompt set, mean over legs. AL is None without speculation; step time in seconds.

    gaps: GAP_QUANTILES of the seconds between arrivals, each of which brings the tokens of one step.
    """

    tokens_per_second: float
    acceptance_length: float | None
    step_time: float | None
    ttft: float | None
    histogram: tuple[int, ...]
    legs: tuple[float, ...]
    gaps: tuple[float, ...] = ()


@dataclass(frozen=True)
class GpuUse:
    """The GPUs of one leg, sampled each second. Clocks in MHz, power in W, memory in MiB, busy 0 to 1.

    sm_clock: median of the seconds with work. reasons: what held the clocks down. throttled: heat, a hardware
    slowdown or a power brake was among them. None: the driver does not tell.
    """

    gpus: int
    samples: int
    sm_clock: float | None
    max_clock: float | None
    power: float | None
    power_limit: float | None
    temperature: float | None
    busy: float | None
    memory: float | None
    reasons: tuple[str, ...]
    throttled: bool


@dataclass(frozen=True)
class Together:
    """One leg with several streams at once. level: streams, 0 for open loop at `rate` requests/s.

    tokens_per_second: of all streams; per_stream: mean of one; late: how late the client started a request,
    95th percentile, seconds (open loop).
    """

    level: int
    rate: float | None
    tokens_per_second: float
    per_stream: float
    ttft: float
    late: float | None = None


@dataclass(frozen=True)
class ByteFloor:
    """The least seconds of a step: the bytes it must read over the GPU's bandwidth, straight in context.

    base: weights; per_token: KV cache of one token of context.
    """

    base: float
    per_token: float
    gpu: str


@dataclass(frozen=True)
class ContextPoint:
    """One leg at one context. prompt_tokens: context; step_time: seconds; histogram[i]: steps with i
    accepted drafts."""

    prompt_tokens: int
    tokens_per_second: float
    acceptance_length: float
    step_time: float
    histogram: tuple[int, ...] = ()


class Lossless(StrEnum):
    """Do the arm's tokens equal those of the autoregressive arm?"""

    IDENTICAL = "identical"
    EQUIVALENT = "numerically equivalent"
    DIFFERENT = "not lossless"
    UNDECIDED = "undecided"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class ArmResult:
    """One arm. per_set: prompt set → rate, and "long". lossless_why: evidence in words.

    context_slope, context_base: seconds for each token of context, and at none. floor: None if nobody knows
    the model's bytes or the GPU's bandwidth.
    """

    name: str
    release: str
    per_set: Mapping[str, SetRate]
    lossless: Lossless
    lossless_why: str
    context: tuple[ContextPoint, ...] = ()
    context_words: str = ""
    context_slope: float | None = None
    context_base: float | None = None
    floor: ByteFloor | None = None
    together: tuple[Together, ...] = ()


@dataclass(frozen=True)
class RunResult:
    """One finished measurement. comparisons: candidate arm → primary result; per_set: arm → set → result.

    sampling: how each prompt set was sampled. order: arm of each leg; leg_rates: its geometric mean tokens/s;
    leg_gpus: its GPUs, None if not sampled.
    """

    run: str
    host: str
    created: str
    quick: bool
    arms: tuple[ArmResult, ...]
    comparisons: Mapping[str, Comparison]
    per_set: Mapping[str, Mapping[str, Comparison]]
    findings: tuple[Finding, ...]
    plan: Mapping[str, Any]
    order: tuple[str, ...]
    leg_rates: tuple[float, ...]
    leg_gpus: tuple[GpuUse | None, ...] = ()
    sampling: Mapping[str, Sampling] = field(default_factory=dict)

    @property
    def exit_code(self) -> ExitCode:
        """10 not lossless, 9 no verdict, else 0."""
        if any(arm.lossless is Lossless.DIFFERENT for arm in self.arms):
            return ExitCode.NOT_LOSSLESS
        undecided = any(one.call is Call.INCONCLUSIVE for one in self.comparisons.values())
        missing = len(self.comparisons) < len(self.arms) - 1
        return ExitCode.INCONCLUSIVE if undecided or missing or not self.valid else ExitCode.OK

    @property
    def valid(self) -> bool:
        """False if a check turned the verdict off."""
        return not any(finding.fatal for finding in self.findings)
