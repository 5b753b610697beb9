"""What a measurement says: typed, frozen, without any I/O. `report` shows these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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


@dataclass(frozen=True)
class SetRate:
    """One arm on one prompt set, mean over legs. AL is None without speculation; step time in seconds."""

    tokens_per_second: float
    acceptance_length: float | None
    step_time: float | None
    ttft: float | None
    histogram: tuple[int, ...]
    legs: tuple[float, ...]


@dataclass(frozen=True)
class ContextPoint:
    """One leg at one context. prompt_tokens: context; step_time: seconds."""

    prompt_tokens: int
    tokens_per_second: float
    acceptance_length: float
    step_time: float


class Lossless(StrEnum):
    """Do the arm's tokens equal those of the autoregressive arm?"""

    IDENTICAL = "identical"
    DIFFERENT = "not lossless"
    UNDECIDED = "undecided"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class ArmResult:
    """One arm. per_set: prompt set → rate. lossless_why: evidence in words."""

    name: str
    release: str
    per_set: Mapping[str, SetRate]
    lossless: Lossless
    lossless_why: str
    context: tuple[ContextPoint, ...] = ()
    context_words: str = ""


@dataclass(frozen=True)
class RunResult:
    """One finished measurement. comparisons: candidate arm → primary result; per_set: arm → set → result."""

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
