"""The method proven by simulation, with fixed seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kdops.bench.orders import alternatives, balanced, draw
from kdops.bench.results import Call
from kdops.bench.statistics import compare, holm, legs_needed, per_set, power, smallest_effect

pytestmark = pytest.mark.unit
CLAIMS = (Call.BETTER, Call.WORSE)


def noise(source: np.random.Generator, legs: int) -> np.ndarray:
    """Leg-to-leg noise of 1.5 %, drift of 6 % over the run, and one leg in three in a mode 4 % slower."""
    drift = source.choice([-1, 1]) * 0.06 * np.linspace(0, 1, legs)
    return source.normal(0, 0.015, legs) + drift - 0.04 * (source.random(legs) < 1 / 3)


@pytest.mark.parametrize(("arms", "legs"), [(2, 4), (3, 4), (2, 6)])
def test_false_positives_stay_below_the_promise(arms: int, legs: int) -> None:
    source = np.random.default_rng(20260101)
    runs = 2000
    false = 0
    for run in range(runs):
        order = draw(arms, legs, run)
        false += compare(order, list(noise(source, len(order))), 1).call in CLAIMS
    upper = stats.beta.ppf(0.95, false + 1, runs - false)  # Clopper-Pearson
    assert upper <= 0.065, f"{false} of {runs} A/A runs made a claim"


def test_drift_alone_makes_no_false_claims() -> None:
    false = 0
    for run in range(2000):
        order = draw(2, 4, run)
        values = [0.1 * position + 0.001 * math.sin(run + position) for position in range(8)]
        false += compare(order, values, 1).call in CLAIMS
    assert false == 0


def test_power_for_5_percent_at_a_leg_sd_of_1_5_percent() -> None:
    source = np.random.default_rng(7)
    runs, seen = 1000, 0
    for run in range(runs):
        order = draw(2, 4, run)
        values = source.normal(0, 0.015, 8) + math.log(1.05) * np.asarray(order)
        seen += compare(order, list(values), 1).call is Call.BETTER
    assert stats.beta.ppf(0.05, seen, runs - seen + 1) >= 0.80, f"{seen} of {runs} seen"


@given(st.integers(4, 8), st.integers(0, 10**6), st.floats(1e-4, 10), st.floats(1e-4, 10))
def test_the_interval_is_welchs(legs: int, seed: int, one: float, other: float) -> None:
    """Against scipy's own, also where one arm is far noisier than the other."""
    source, order = np.random.default_rng(seed), draw(2, legs, seed)
    values = np.where(order, source.normal(0.1, one, 2 * legs), source.normal(0, other, 2 * legs))
    found = compare(order, list(values), 1)
    arms = [values[np.asarray(order) == arm] for arm in (1, 0)]
    theirs = stats.ttest_ind(*arms, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(theirs.low), math.exp(theirs.high)), rel=1e-9)


@pytest.mark.parametrize("legs", [1, 2, 3])
def test_no_equivalence_from_fewer_than_four_legs(legs: int) -> None:
    source = np.random.default_rng(3)
    for run in range(300):
        order = draw(2, legs, run)
        values = list(source.normal(0, 1e-5, len(order)))
        assert compare(order, values, 1).call is Call.INCONCLUSIVE


def test_equivalence_is_found_and_not_for_a_real_difference() -> None:
    source = np.random.default_rng(4)
    found = wrong = 0
    for run in range(300):
        order = draw(2, 4, run)
        quiet = source.normal(0, 0.004, 8)
        found += compare(order, list(quiet), 1).call is Call.EQUIVALENT
        shifted = quiet + math.log(1.02) * np.asarray(order)
        wrong += compare(order, list(shifted), 1).call is Call.EQUIVALENT
    assert found >= 270
    assert wrong <= 15  # 5 % at the margin itself


def test_no_claim_below_the_noise_floor() -> None:
    order = draw(2, 4, 1)
    values = [0.03 * arm + 0.0001 * i for i, arm in enumerate(order)]
    assert compare(order, values, 1).call is Call.BETTER
    found = compare(order, values, 1, floor=0.05)
    assert found.call is Call.INCONCLUSIVE
    assert "A/A noise" in found.why


@given(st.integers(2, 3), st.integers(1, 4), st.integers(0, 10**6))
def test_a_drawn_order_is_balanced_and_reproducible(arms: int, legs: int, seed: int) -> None:
    order = draw(arms, legs, seed)
    assert balanced(order)
    assert all(order.count(arm) == legs for arm in range(arms))
    assert draw(arms, legs, seed) == order
    assert [arm == 1 for arm in order] in alternatives(order, 0, 1).tolist()


def test_the_default_can_reach_significance_and_says_what_fewer_legs_cannot() -> None:
    listed = alternatives(draw(2, 4, 5), 0, 1)
    assert len(listed) == 46
    order = draw(2, 2, 5)
    found = compare(order, [float(arm) for arm in order], 1)
    assert found.call is Call.INCONCLUSIVE and "more legs" in found.why


def test_sets_speak_only_after_the_primary() -> None:
    order = draw(2, 4, 9)
    better = [0.1 * arm + 0.001 * i for i, arm in enumerate(order)]
    flat = [0.001 * ((i * 7) % 5) for i in range(8)]
    primary = compare(order, better, 1)
    sets = per_set(primary, order, {"prose": better, "code": flat}, 1)
    assert sets["prose"].call is Call.BETTER
    assert sets["code"].call is Call.INCONCLUSIVE
    silent = per_set(compare(order, flat, 1), order, {"prose": better}, 1)
    assert silent["prose"].call is Call.INCONCLUSIVE


def test_holm_is_holm() -> None:
    # Worked example: 0.01·4, 0.02·3, 0.03·2, 0.04·1, each at least the one before.
    adjusted = holm({"a": 0.04, "b": 0.01, "c": 0.03, "d": 0.02})
    assert adjusted == pytest.approx({"b": 0.04, "d": 0.06, "c": 0.06, "a": 0.06})


@settings(max_examples=25, deadline=None)
@given(st.floats(0.001, 0.2), st.integers(3, 8))
def test_the_smallest_effect_has_the_stated_power(sd: float, legs: int) -> None:
    assert power(sd, legs, smallest_effect(sd, legs)) == pytest.approx(0.8, abs=1e-6)


def test_legs_needed() -> None:
    assert legs_needed(0.015, math.log(1.05)) == 3
    assert legs_needed(0.05, math.log(1.05)) == 18
    assert legs_needed(10.0, math.log(1.05)) is None


@pytest.mark.parametrize("bad", [[1.0] * 7, [float("nan")] * 8])
def test_odd_values_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError):
        compare(draw(2, 4, 1), bad, 1)
