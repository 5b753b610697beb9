"""From the legs of a run to what may be said of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kdops.bench import clocks, lossless
from kdops.bench.leg import Leg, Measured
from kdops.bench.orders import alternatives
from kdops.bench.rates import Rate, burst_findings, context_fit, mean_log, split
from kdops.bench.results import (
    GAP_QUANTILES,
    ArmResult,
    ByteFloor,
    Call,
    Comparison,
    ContextPoint,
    Finding,
    Lossless,
    RunResult,
    SetRate,
)
from kdops.bench.statistics import compare, per_set
from kdops.bench.workloads.sampling import Sampling, read

REFERENCE_LEG = -1
"""Position of the extra start of the autoregressive arm that losslessness is checked against."""


def build(
    run: str, host: str, created: str, plan: Mapping[str, Any], legs: Mapping[int, Leg], floor: float
) -> RunResult:
    """Return the result. legs: position → leg, all positions of the plan's order. floor: A/A noise (log)."""
    order, names = tuple(plan["order"]), [arm["name"] for arm in plan["arms"]]
    ordered = [legs[position] for position in range(len(order))]
    # Whether a text ends at once depends on model and prompt, not on the arm: such a set is left out for all.
    every = tuple(plan["sets"])
    told = plan.get("sampling", {})  # not in old plans: everything was greedy
    sampling = {name: read(told.get(name, {}), name) for name in every}
    sets = tuple(name for name in every if any(name in leg.stages for leg in ordered))
    findings = [finding for leg in legs.values() for finding in leg.findings]
    by_arm = {name: [leg.gpus for leg in ordered if leg.arm == name] for name in names}
    findings += [*clocks.gap_findings(by_arm), *_cannot_sample(plan["arms"], sampling)]
    if not any(leg.gpus for leg in ordered):
        findings.append(
            Finding("the GPUs were not sampled", "no nvidia-smi where the client ran", fatal=False)
        )
    complete = bool(sets) and all(name in leg.stages for leg in ordered for name in sets)
    comparisons: dict[str, Comparison] = {}
    by_set: dict[str, Mapping[str, Comparison]] = {}
    values: list[float] = []
    if complete:
        rates = {name: [leg.stages[name].tokens_per_second for leg in ordered] for name in sets}
        values = [mean_log(rates[name][i] for name in sets) for i in range(len(order))]
        logs = {name: [math.log(rate) for rate in rates[name]] for name in sets}
        for candidate in range(1, len(names)):
            primary = compare(order, values, candidate, floor=floor)
            secondary = per_set(primary, order, logs, candidate)
            comparisons[names[candidate]], by_set[names[candidate]] = primary, secondary
    arms = tuple(_arm(i, arm, order, legs, sampling) for i, arm in enumerate(plan["arms"]))
    if not plan["quick"]:  # a quick run has no long generation by design
        findings += [finding for arm in arms for finding in _long(arm, ordered, every)]
    found = _gathered(findings)
    if fatal := next((one for one in found if one.fatal), None):
        why = f"no verdict: {fatal.title} ({fatal.where}: {fatal.evidence})"
        comparisons = {name: _off(one, why) for name, one in comparisons.items()}
        by_set = {a: {s: _off(one, why) for s, one in sets_.items()} for a, sets_ in by_set.items()}
    else:
        comparisons = {name: _with_split(one, arms, name, sets) for name, one in comparisons.items()}
    return RunResult(
        run=run,
        host=host,
        created=created,
        quick=bool(plan["quick"]),
        arms=arms,
        comparisons=comparisons,
        per_set=by_set,
        findings=found,
        plan=plan,
        sampling=sampling,
        order=tuple(names[arm] for arm in order),
        leg_rates=tuple(math.exp(value) for value in values),
        leg_gpus=tuple(leg.gpus for leg in ordered),
    )


def _gathered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Say once what several legs say in the same words."""
    places: dict[Finding, list[str]] = {}
    for finding in findings:
        places.setdefault(replace(finding, where=""), []).append(finding.where)
    found = []
    for finding, where in places.items():
        legs = list(dict.fromkeys(filter(None, where)))
        found.append(replace(finding, where="; ".join(legs) if len(legs) < 3 else f"{len(legs)} legs"))
    return tuple(found)


def smallest_p(order: tuple[int, ...]) -> float:
    """Return the least p that every candidate can reach: the one with the shortest list decides."""
    return max(2 / len(alternatives(order, 0, candidate)) for candidate in sorted(set(order) - {0}))


def _off(one: Comparison, why: str) -> Comparison:
    return replace(one, call=Call.INCONCLUSIVE, why=why)


def _with_split(one: Comparison, arms: Sequence[ArmResult], name: str, sets: Sequence[str]) -> Comparison:
    """Say why: the ratio taken apart, geometric means over the sets."""
    base, candidate = arms[0], next(arm for arm in arms if arm.name == name)
    pairs = [
        (base.per_set[s], candidate.per_set[s]) for s in sets if s in base.per_set and s in candidate.per_set
    ]
    if not pairs:
        return one
    before, after = (_mean([pair[side] for pair in pairs]) for side in (0, 1))
    return replace(one, why=f"{one.why}; {split(before, after).words()}")


def _mean(rates: Sequence[SetRate]) -> Rate:
    speed = mean_log(rate.tokens_per_second for rate in rates)
    length = mean_log(rate.acceptance_length or 1.0 for rate in rates)
    return Rate(math.exp(length), math.exp(speed))


def _long(arm: ArmResult, legs: Sequence[Leg], sets: Sequence[str]) -> tuple[Finding, ...]:
    """Compare the two-point speed of the set with the same text with that of the long generation."""
    long, short = arm.per_set.get("long"), arm.per_set.get(sets[min(1, len(sets) - 1)])
    if long is None or short is None:
        return ()
    tokens = (
        min(leg.stages["long"].tokens for leg in legs if leg.arm == arm.name and "long" in leg.stages) + 1
    )
    one, other = (Rate(rate.acceptance_length or 1.0, rate.tokens_per_second) for rate in (short, long))
    return tuple(replace(found, where=arm.name) for found in burst_findings(one, other, tokens))


def _arm(
    index: int,
    arm: Mapping[str, Any],
    order: Sequence[int],
    legs: Mapping[int, Leg],
    sampling: Mapping[str, Sampling],
) -> ArmResult:
    own = [legs[position] for position, found in enumerate(order) if found == index]
    names = (*sampling, "long")
    rates = {name: _rate([leg.stages[name] for leg in own if name in leg.stages]) for name in names}
    judged, why = _lossless(arm, own, legs, sampling)
    points = [(tokens, sums.rate) for leg in own for tokens, sums in leg.context.items()]
    fit = context_fit(points) if len({tokens for tokens, _ in points}) > 1 else None
    return ArmResult(
        name=arm["name"],
        release=arm["release"],
        per_set={name: rate for name, rate in rates.items() if rate is not None},
        lossless=judged,
        lossless_why=why,
        context=tuple(
            ContextPoint(tokens, r.tokens_per_second, r.acceptance_length, r.step_time, sums.histogram)
            for leg in own
            for tokens, sums in leg.context.items()
            for r in (sums.rate,)
        ),
        context_words=fit.words() if fit else "",
        context_slope=fit.slope if fit else None,
        context_base=fit.base if fit else None,
        floor=ByteFloor(**arm["floor"]) if arm.get("floor") else None,
        together=tuple(one for leg in own for one in leg.together),
    )


def _rate(measured: Sequence[Measured]) -> SetRate | None:
    if not measured:
        return None
    speeds = [one.tokens_per_second for one in measured]
    steps, accepted = sum(one.steps for one in measured), sum(one.accepted for one in measured)
    speed = math.exp(mean_log(speeds))
    length = 1 + accepted / steps if steps else None
    longest = max(len(one.histogram) for one in measured)
    histogram = [sum(one.histogram[i] for one in measured if i < len(one.histogram)) for i in range(longest)]
    ttft = sum(one.ttft for one in measured) / len(measured)
    gaps = _quantiles([gap for one in measured for gap in one.gaps])
    return SetRate(speed, length, (length or 1.0) / speed, ttft, tuple(histogram), tuple(speeds), gaps)


def _quantiles(gaps: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(q) for q in np.quantile(gaps, GAP_QUANTILES)) if gaps else ()


def _lossless(
    arm: Mapping[str, Any], own: Sequence[Leg], legs: Mapping[int, Leg], sampling: Mapping[str, Sampling]
) -> tuple[Lossless, str]:
    """Judge the arm against the autoregressive start, by the greedy sets."""
    if not arm["speculates"]:
        return Lossless.IDENTICAL, "it is the autoregressive arm itself"
    sets = [name for name, one in sampling.items() if one.greedy]
    drawn = [name for name in sampling if name not in sets]
    if not sets:
        return Lossless.UNCHECKED, "sampled tokens differ from start to start; only greedy sets tell"
    leg = legs.get(REFERENCE_LEG)
    if leg is None:
        return Lossless.UNCHECKED, "no autoregressive leg in this run"
    reference = lossless.split_reference(leg.outputs, leg.margins, sets)
    found, why = lossless.judge([one.outputs for one in own], reference, exact=arm["dtype"] == "float32")
    return found, f"{why}; sampled, so not compared: {', '.join(drawn)}" if drawn else why


def _cannot_sample(arms: Sequence[Mapping[str, Any]], sampling: Mapping[str, Sampling]) -> Iterator[Finding]:
    drawn = [name for name, one in sampling.items() if not one.greedy]
    for arm in arms:
        if drawn and not arm.get("samples", True):
            said = f"{', '.join(drawn)}: SGLang's DFLASH has no sampled verify on a CPU and decodes greedily"
            yield Finding("an arm did not sample", said, arm["name"])
