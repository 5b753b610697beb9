"""The A/B view's numbers: what legs say so far, and what a run that is not over says."""

from __future__ import annotations

import asyncio
import math

import pytest
import session
from test_tui_app import Script, run, shown

from kdops.bench.leg import Leg, Measured
from kdops.store import Store
from kdops.tui import actions, measuring, runs

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


def measure(store: Store, position: int, speed: float) -> None:
    """Store a finished leg of 100 tokens a set."""
    attempt = store.open_leg("20261129-1", position)
    for key in PLAN["sets"]:
        meta = {
            "prompt_tokens": 5, "completion_tokens": 101, "spec_verify_ct": 50, "spec_num_correct_drafts": 50,
            "spec_correct_drafts_histogram": [0, 50], "spec_num_proposed_drafts": 350,
        }  # fmt: skip
        sample = {
            "key": key, "stage": key, "asked": 101, "first_tokens": 1, "decode_seconds": 100 / speed,
            "ttft": 0.1, "output_ids": list(range(10, 111)), "meta": meta,
        }  # fmt: skip
        store.add_sample("20261129-1", position, attempt, key, sample)
    store.close_leg("20261129-1", position, attempt, {})


def table(lines: list[str]) -> list[list[str]]:
    return [line.split() for line in lines[1:6]]


def test_what_to_do_about_a_run_that_nothing_measures_any_more(store):
    one = {**PLAN, "arms": ARMS[:1], "order": [0], "reference": False}
    store.open_run("20261129-2", "b300-0", "2026-11-29T11:00:00+00:00", one)
    store.close()
    store = Store()
    assert {line.state for line in runs.listing(store)} == {"interrupted"}
    assert runs.about(store, "20261129-1")[-1].endswith(": kdops ab resume 20261129-1")
    assert runs.about(store, "20261129-2")[-1].endswith(": kdops bench b300-0"), "it cannot be resumed"


def test_a_run_that_goes_on_shows_its_legs_and_no_verdict(store):
    assert runs.listing(store) == [
        runs.RunLine("20261129-1", "b300-0", "running", 0, 5, ("linear", "ddtree"))
    ]
    said = runs.about(store, "20261129-1")
    assert table(said)[0] == ["1", "autoregressive", "(reference)", "measured", "now"]
    assert not any("estimate" in line or "×" in line for line in said)
    for position, speed in ((-1, 5.0), (0, 10.0), (1, 15.0)):
        measure(store, position, speed)
    assert runs.listing(store)[0].done == 3
    said = runs.about(store, "20261129-1")
    assert table(said) == [
        ["1", "autoregressive", "(reference)", "measured"],
        ["2", "linear", "10.0"],
        ["3", "ddtree", "15.0"],
        ["4", "ddtree", "measured", "now"],
        ["5", "linear", "-"],
    ]
    assert "ddtree: × 1.500  (no interval before two legs an arm; 1 + 1 legs)  not a verdict yet" in said
    for position, speed in ((2, 15.1), (3, 10.1)):
        measure(store, position, speed)
    said = runs.about(store, "20261129-1")
    assert any("not a verdict yet" in line for line in said), "the host is being restored"
    store.set_state("20261129-1", "done", {})
    assert not any("not a verdict yet" in line for line in runs.about(store, "20261129-1"))


def test_a_run_that_was_cut_says_how_to_go_on(store):
    measure(store, -1, 5.0)
    store.set_state("20261129-1", "interrupted")
    said = runs.about(store, "20261129-1")
    assert "4 of 5 legs are missing" in said[0]
    assert not any("now" in line for line in said)
    assert said[-1] == "remedy: kdops ab resume 20261129-1"


def test_the_view_lists_runs_and_says_how_far_they_are(store):
    async def test(app, pilot):
        await pilot.press("4")

        async def until(words):
            for _ in range(100):
                if words in await shown(app, pilot):
                    return
                await asyncio.sleep(0.05)
            pytest.fail(await shown(app, pilot))

        await until("measured now")
        text = await shown(app, pilot)
        assert "20261129-1" in text and "0/5" in text and "linear ddtree" in text
        assert "kdops ab resume" not in text, "a process measures it"
        for position, speed in ((-1, 5.0), (0, 10.0), (1, 15.0)):
            measure(store, position, speed)
        await until("not a verdict yet")
        assert "3/5" in await shown(app, pilot)

    run(test, Script(list(session.events(2))))


def test_a_report_is_worked_out_once(store, monkeypatch):
    asked = []
    monkeypatch.setattr(measuring, "about", lambda store, id_: asked.append(id_) or ["the report"])

    async def test(app, pilot):
        await pilot.press("4")
        for _ in range(100):
            if "the report" in await shown(app, pilot):
                break
            await asyncio.sleep(0.05)
        for _ in range(5):
            app.measuring.refresh()
            await asyncio.sleep(0.05)
            assert "the report" in await shown(app, pilot)
        assert asked == ["20261129-1"]
        store.set_state("20261129-1", "interrupted")
        for _ in range(100):
            if len(asked) == 2:
                break
            await shown(app, pilot)
            await asyncio.sleep(0.05)
        assert len(asked) == 2, "its state is another"

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
