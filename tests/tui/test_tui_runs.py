"""The A/B view's numbers: what legs say so far, and what a run that is not over says."""

from __future__ import annotations

import asyncio
import math

import pytest
import session
from test_tui_app import Script, run, shown

from kdops.bench.leg import Leg, Measured
from kdops.store import Store
from kdops.tui import actions, runs

pytestmark = pytest.mark.unit

ARMS = [
    {"name": name, "profile": name, "overrides": {}, "release": "r", "speculates": True, "dtype": "float32"}
    for name in ("linear", "ddtree")
]
PLAN = {
    "arms": ARMS, "reference": True, "order": [0, 1, 1, 0], "seed": 1, "quick": False, "smallest_p": 0.3,
    "sets": ["prose", "code"], "workload": "w", "inventory": "i.yml",
}  # fmt: skip


def leg(arm: str, prose: float, code: float) -> Leg:
    stages = {
        name: Measured(100, 100 / speed, 0, 0, (), 0.1, 10)
        for name, speed in (("prose", prose), ("code", code))
    }
    return Leg(arm, stages, {}, {}, (), (), {}, None)


def test_an_estimate_needs_a_leg_of_each_arm():
    assert runs.estimates(PLAN, {}) == []
    assert runs.estimates(PLAN, {1: leg("ddtree", 20, 20)}) == []
    (one,) = runs.estimates(PLAN, {0: leg("linear", 10, 40), 1: leg("ddtree", 20, 40)})
    assert one.ratio == pytest.approx(math.sqrt(2)), "the sets weigh the same"
    assert one.low is None and "not a verdict yet" in one.words


def test_the_interval_comes_with_the_second_leg_of_each():
    legs = {
        0: leg("linear", 10, 10),
        1: leg("ddtree", 15, 15),
        2: leg("ddtree", 15.3, 15.3),
        3: leg("linear", 10.1, 10.1),
    }
    (one,) = runs.estimates(PLAN, legs)
    assert one.low < one.ratio < one.high
    assert one.legs == (2, 2) and "not a verdict yet" in one.words


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path))
    made = Store()
    made.open_run("20261129-1", "b300-0", "2026-11-29T10:00:00+00:00", PLAN)
    yield made
    made.close()


def test_a_run_that_is_not_over(store):
    assert runs.listing(store) == [
        runs.RunLine("20261129-1", "b300-0", "running", 0, 5, ("linear", "ddtree"))
    ]
    text = "\n".join(runs.about(store, "20261129-1"))
    assert "5 of 5 legs are missing" in text and "kdops ab resume 20261129-1" in text


def test_the_view_lists_runs_and_says_how_far_they_are(store):
    async def test(app, pilot):
        await pilot.press("4")
        for _ in range(40):
            if "5 of 5 legs" in await shown(app, pilot):
                break
            await asyncio.sleep(0.05)
        text = await shown(app, pilot)
        assert "20261129-1" in text and "0/5" in text and "linear ddtree" in text
        assert "remedy: kdops ab resume" in text

    run(test, Script(list(session.events(2))))


def test_an_unusable_store_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path / "file"))

    async def test(app, pilot):
        await pilot.press("4")
        for _ in range(40):
            if "cannot be opened" in await shown(app, pilot):
                return
            await asyncio.sleep(0.05)
        pytest.fail(await shown(app, pilot))

    run(test, Script(list(session.events(2))))


def test_what_can_be_done_depends_on_write():
    read_only = {id_: why for id_, _, why in actions.choices(write=False)}
    assert read_only["restart"] == read_only["deploy"] == "needs --write"
    assert read_only["check"] == read_only["report"] == ""
    assert {why for _, _, why in actions.choices(write=True)} == {""}
