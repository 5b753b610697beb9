"""The numbers of one real misdiagnosis: 138 against 32 tokens/s, blamed on a parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.bench.rates import Rate, burst_findings, context_fit, mean_log, split

pytestmark = pytest.mark.unit

CONTEXT = [
    (13, Rate(4.75, 139.6)),
    (1663, Rate(7.17, 114.2)),
    (3333, Rate(7.90, 77.9)),
    (5553, Rate(7.85, 54.5)),
]


def test_step_time_is_89_ms_and_not_156() -> None:
    assert Rate(692 / 237, 32.7).step_time == pytest.approx(0.089, abs=0.0005)


def test_the_slowdown_is_taken_apart() -> None:
    fall = split(Rate(5.0, 113.0), Rate(2.92, 32.7))
    assert 1 / fall.acceptance_length == pytest.approx(1.7, abs=0.05)
    assert fall.step_time == pytest.approx(2.0, abs=0.05)


def test_growth_of_step_time_is_apart_from_acceptance() -> None:
    fit = context_fit(CONTEXT)
    assert fit.slope * 1e6 == pytest.approx(20.0, abs=1.0)  # ms for each 1,000 tokens
    assert fit.end_to_end.tokens_per_second == pytest.approx(0.39, abs=0.005)
    assert fit.end_to_end.acceptance_length == pytest.approx(1.65, abs=0.005)
    assert fit.end_to_end.step_time == pytest.approx(4.23, abs=0.01)
    assert "AL ×1.65" in fit.words() and "step time ×4.23" in fit.words()


def test_a_step_time_that_falls_a_little_has_no_minus_nought() -> None:
    assert "grows 0.0 ms" in context_fit([(100, Rate(2.0, 464.0)), (1000, Rate(2.0, 464.1))]).words()


def test_a_short_burst_flatters() -> None:
    (finding,) = burst_findings(Rate(5.0, 113.0), Rate(2.92, 32.7), 1500)
    assert finding.title == "short burst flatters"
    assert "AL ×1.71" in finding.evidence
    assert burst_findings(Rate(3.0, 34.0), Rate(2.92, 32.7), 1500) == ()
    assert burst_findings(Rate(5.0, 113.0), Rate(2.92, 32.7), 200)[0].title == "no long generation"


def test_one_context_has_no_slope() -> None:
    with pytest.raises(ValueError):
        context_fit([(13, Rate(1, 1)), (13, Rate(2, 2))])


RATES = st.builds(Rate, st.floats(1, 20), st.floats(0.1, 1e4))


@given(RATES, RATES)
def test_the_split_is_exact(before: Rate, after: Rate) -> None:
    apart = split(before, after)
    assert apart.tokens_per_second == pytest.approx(apart.acceptance_length / apart.step_time)


@pytest.mark.parametrize("bad", [[], [0.0], [1.0, float("nan")], [float("inf")]])
def test_no_logarithm_of_nothing(bad: list[float]) -> None:
    with pytest.raises(ValueError):
        mean_log(bad)
