"""Is the candidate faster? The unit of replication is a server start (a leg), never a request.

Primary endpoint: the equal-weight mean over prompt sets of a leg's log tokens/s, candidate minus baseline.
Tested by permutation over the list of orders the run's order was drawn from, so neither drift nor odd noise
makes a false claim; a Welch Student-t interval over legs gives the size. Secondary: each set, Holm-adjusted.
Sources: Edgington & Onghena, Randomization Tests; Holm 1979; Schuirmann 1987 (TOST).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from kdops.bench.orders import alternatives
from kdops.bench.results import Call, Comparison

ALPHA = 0.05
POWER = 0.8
MARGIN = math.log(1.02)
EQUIVALENCE_LEGS = 4
"""Fewer legs an arm than this never show equivalence."""
_MOST_NEEDED = 200


def compare(
    order: tuple[int, ...], values: Sequence[float], candidate: int, *, floor: float = 0.0, baseline: int = 0
) -> Comparison:
    """Compare two arms on the primary endpoint.

    order: arm of each leg. values: mean log tokens/s of each leg. floor: the host's A/A noise floor (log
    ratio); no claim below it. Raises ValueError when values and order do not match or a value is no number.
    """
    if len(values) != len(order) or not all(map(math.isfinite, values)):
        raise ValueError("every leg needs one finite value")
    listed = alternatives(order, baseline, candidate)
    p = _permutation(
        listed, np.asarray(order) == baseline, np.asarray(order) == candidate, np.asarray(values)
    )
    ours = [v for v, arm in zip(values, order, strict=True) if arm == baseline]
    theirs = [v for v, arm in zip(values, order, strict=True) if arm == candidate]
    return _decide(ours, theirs, p, 2 / len(listed), floor)


def _permutation(listed: Any, ours: Any, theirs: Any, values: Any) -> float:
    both = ours | theirs
    second = listed @ values / theirs.sum()
    first = (both & ~listed) @ values / ours.sum()
    own = abs(values[theirs].mean() - values[ours].mean())
    return float(np.mean(np.abs(second - first) >= own - 1e-12))


def _decide(
    ours: Sequence[float], theirs: Sequence[float], p: float | None, smallest: float | None, floor: float
) -> Comparison:
    legs = (len(ours), len(theirs))
    effect = float(np.mean(theirs) - np.mean(ours))
    if min(legs) < 2:
        why = "one start an arm is exploratory: the noise between starts is unknown"
        return Comparison(
            Call.INCONCLUSIVE, math.exp(effect), None, None, None, smallest, legs, None, None, None, why
        )
    sd = math.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / 2)
    low, high = _interval(ours, theirs, effect, sd)
    call, why = _call(effect, low, high, p, smallest, min(legs), floor)
    visible, needed = smallest_effect(sd, min(legs)), legs_needed(sd, math.log(1.05))
    return Comparison(
        call,
        math.exp(effect),
        math.exp(low),
        math.exp(high),
        p,
        smallest,
        legs,
        sd,
        math.exp(visible) - 1,
        needed,
        why,
    )


def _interval(
    ours: Sequence[float], theirs: Sequence[float], effect: float, sd: float
) -> tuple[float, float]:
    """Welch's interval. scipy's ttest_ind gives the same, 30 times slower; a simulation needs thousands."""
    if sd == 0:
        return effect, effect
    arms = (ours, theirs)
    parts = [float(np.var(arm, ddof=1)) / len(arm) for arm in arms]
    whole = sum(parts)
    degrees = 1 / sum((part / whole) ** 2 / (len(arm) - 1) for part, arm in zip(parts, arms, strict=True))
    half = float(special.stdtrit(degrees, 1 - ALPHA / 2)) * math.sqrt(whole)
    return effect - half, effect + half


def _call(
    effect: float, low: float, high: float, p: float | None, smallest: float | None, legs: int, floor: float
) -> tuple[Call, str]:
    percent = f"{math.exp(effect) - 1:+.1%}"
    if smallest is not None and smallest > ALPHA:
        return (
            Call.INCONCLUSIVE,
            f"{legs} legs an arm can reach p = {smallest:.2f} at best: more legs are needed",
        )
    if p is not None and p <= ALPHA and (low > 0 or high < 0):
        if abs(effect) <= floor:
            return Call.INCONCLUSIVE, f"{percent} is within this host's A/A noise of {math.expm1(floor):.1%}"
        if low > -MARGIN and high < MARGIN:
            return Call.EQUIVALENT, f"a difference of {percent} is there, but within ±2 %"
        return (Call.BETTER if effect > 0 else Call.WORSE), f"{percent} tokens/s, p = {p:.3f}"
    if low > -MARGIN and high < MARGIN:
        if legs >= EQUIVALENCE_LEGS:
            return Call.EQUIVALENT, f"the 95 % interval of {percent} lies within ±2 %"
        return Call.INCONCLUSIVE, f"equivalence needs {EQUIVALENCE_LEGS} legs an arm"
    return (
        Call.INCONCLUSIVE,
        f"{percent}, but the interval allows {math.expm1(low):+.1%} to {math.expm1(high):+.1%}",
    )


def per_set(
    primary: Comparison, order: tuple[int, ...], values: Mapping[str, Sequence[float]], candidate: int
) -> dict[str, Comparison]:
    """Return the secondary comparisons: Holm-adjusted t tests, calls only if the primary passed."""
    found: dict[str, Comparison] = {}
    raw: dict[str, float] = {}
    for name, per_leg in values.items():
        ours = [v for v, arm in zip(per_leg, order, strict=True) if arm == 0]
        theirs = [v for v, arm in zip(per_leg, order, strict=True) if arm == candidate]
        found[name] = _decide(ours, theirs, None, None, 0.0)
        raw[name] = _t_test(ours, theirs)
    adjusted = holm(raw)
    passed = primary.call in (Call.BETTER, Call.WORSE)
    for name, one in found.items():
        p = None if one.low is None else adjusted[name]
        call = Call.INCONCLUSIVE
        if passed and p is not None and p <= ALPHA:
            call = Call.BETTER if one.ratio > 1 else Call.WORSE
        found[name] = replace(
            one, p=p, call=call, why="Holm-adjusted" if passed else "the primary did not pass"
        )
    return found


def _t_test(ours: Sequence[float], theirs: Sequence[float]) -> float:
    if min(len(ours), len(theirs)) < 2:
        return 1.0
    if np.var(ours) == np.var(theirs) == 0:
        return 1.0 if np.mean(ours) == np.mean(theirs) else 0.0
    return float(stats.ttest_ind(theirs, ours, equal_var=False).pvalue)


def holm(raw: Mapping[str, float]) -> dict[str, float]:
    """Return Holm's step-down adjusted p-values."""
    adjusted, running = {}, 0.0
    for rank, (name, p) in enumerate(sorted(raw.items(), key=lambda item: item[1])):
        running = max(running, min(1.0, p * (len(raw) - rank)))
        adjusted[name] = running
    return adjusted


def power(sd: float, legs: int, effect: float) -> float:
    """Return the chance that a two-sided t test of `legs` an arm sees `effect` (both in log tokens/s)."""
    degrees = 2 * legs - 2
    shift = effect / (sd * math.sqrt(2 / legs))
    critical = stats.t.ppf(1 - ALPHA / 2, degrees)
    # The other tail is left out: at any power of interest it is below 1e-4.
    return float(stats.nct.sf(critical, degrees, min(shift, 37.0)))


@lru_cache(maxsize=256)
def _standard_effect(legs: int) -> float:
    """Return the smallest effect in units of the leg SD: power depends on effect / SD alone."""
    return float(optimize.brentq(lambda effect: power(1.0, legs, effect) - POWER, 0.1, 36))


def smallest_effect(sd: float, legs: int) -> float:
    """Return the log ratio that `legs` an arm (at least 2) see with 80 % power."""
    return sd * _standard_effect(legs)


def legs_needed(sd: float, effect: float) -> int | None:
    """Return the fewest legs an arm that see `effect` with 80 % power, None if beyond 200."""
    return next((n for n in range(2, _MOST_NEEDED + 1) if smallest_effect(sd, n) <= effect), None)
