"""The plan of a run: as many legs as a verdict needs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from fleet_files import host

from kdops.bench.arms import parse
from kdops.bench.job import enough, prepare, single
from kdops.bench.orders import draw
from kdops.bench.verdict import smallest_p
from kdops.bench.workloads import Sampling, built_in, make

pytestmark = pytest.mark.unit


def test_two_arms_need_four_legs_whatever_the_seed() -> None:
    assert {enough(2, seed) for seed in range(20)} == {4}


@pytest.mark.parametrize("arms", [3, 4])
def test_more_arms_get_the_legs_that_every_candidate_needs(arms: int) -> None:
    for seed in range(8):
        legs = enough(arms, seed)
        assert 4 <= legs <= 6
        assert smallest_p(draw(arms, legs, seed)) <= 0.05
        assert legs == 4 or smallest_p(draw(arms, legs - 1, seed)) > 0.05


def test_a_measurement_of_what_serves_carries_the_serving_release(tmp_path: Path) -> None:
    suite = partial(make, built_in(), quick=True)
    job = single(host(tmp_path), "linear", "linear-deployedby", lambda n: suite(context_length=n), quick=True)
    assert job.plan["arms"][0]["release"] == "linear-deployedby"


def test_arms_that_do_not_speculate_need_no_start_to_be_compared_with(tmp_path: Path) -> None:
    suite = partial(make, built_in(), quick=True)
    for profiles, starts in ((["autoregressive", "autoregressive"], 2), (["autoregressive", "ddtree"], 3)):
        arms = parse(profiles, [])
        made = prepare(host(tmp_path), arms, lambda n: suite(context_length=n), quick=True, seed=1)
        assert len(made.positions) == starts


def test_sampled_sets_need_no_autoregressive_start(tmp_path: Path) -> None:
    arms = parse(["linear", "ddtree"], [])
    for sampling, reference in ((None, True), (Sampling(temperature=0.7), False)):
        suite = partial(make, built_in(), quick=True, sampling=sampling)
        made = prepare(host(tmp_path), arms, lambda n: suite(context_length=n), quick=True, seed=1)  # noqa: B023
        assert made.plan["reference"] is reference and len(made.positions) == 2 + reference
        assert made.plan["sampling"]["prose"] == {"temperature": 0.7 if sampling else 0.0}
