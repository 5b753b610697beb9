"""A store that was damaged, edited, or written by another version: told in a sentence, whatever is in it."""

from __future__ import annotations

import copy
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from kdops.bench import floor
from kdops.bench.stored import result
from kdops.cli import ab_runs, main
from kdops.errors import KdopsError
from kdops.observe.evidence import from_run, run_of
from kdops.store import Mark, Store, StoredRun
from kdops.tui import runs

pytestmark = pytest.mark.unit

ARM = {"profile": "linear", "release": "r", "speculates": True, "dtype": "float32", "overrides": {}}
PLAN: dict[str, Any] = {
    "arms": [{"name": "linear", **ARM}, {"name": "ddtree", **ARM}], "order": [0, 1, 1, 0], "reference": True,
    "quick": False, "seed": 1, "sets": ["prose"], "workload": "w", "inventory": "i.yml",
}  # fmt: skip
META = {
    "prompt_tokens": 5, "completion_tokens": 101, "spec_verify_ct": 50, "spec_num_correct_drafts": 50,
    "spec_correct_drafts_histogram": [0, 50], "spec_num_proposed_drafts": 350,
}  # fmt: skip
SAMPLE: dict[str, Any] = {
    "key": "prose/0", "stage": "prose", "asked": 101, "first_tokens": 1, "decode_seconds": 2.0,
    "seconds": 2.1, "ttft": 0.1, "output_ids": list(range(101)), "gaps": [0.02] * 100, "meta": META,
    "began": 1.0,
}  # fmt: skip
EVIDENCE: dict[str, Any] = {
    "stages": [{"name": "prose", "before": "x 1", "after": "x 2", "requests": 1, "seconds": 3.0}],
    "client": {"wall_seconds": 5.0, "cpu_seconds": 0.1}, "suppressed": [], "end_tokens": [7],
    "gpus": ["0, 900, 2430, 300, 700, 60, 90, 1000, 0x0"], "round_trip": 0.001,
}  # fmt: skip


def stored(
    plan: Any = PLAN, sample: Any = SAMPLE, evidence: Any = EVIDENCE, name: str = "r1", day: int = 2
) -> Store:
    """Return the store of the state folder with a finished run, written around what Store itself would do."""
    made = Store()
    made.open_run(name, "one", f"2026-01-{day:02}T00:00:00+00:00", PLAN)
    for position in (-1, *range(4)):
        made.add_sample(name, position, made.open_leg(name, position), "prose/0", {})
        made.close_leg(name, position, 1, {})
    made.set_state(name, "done", {})
    path = str(made._path)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE runs SET plan = ? WHERE id = ?", (json.dumps(plan), name))
        raw.execute("UPDATE samples SET sample = ?", (json.dumps(sample),))
        raw.execute("UPDATE legs SET evidence = ?", (json.dumps(evidence),))
    raw.close()
    return made


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path))
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["kdops", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)


BROKEN: list[Callable[[dict[str, Any]], Any]] = [
    lambda plan: plan.update(arms=None),
    lambda plan: plan.update(arms=[]),
    lambda plan: plan.update(arms="linear"),
    lambda plan: plan.update(arms=[None, 3]),
    lambda plan: plan.update(arms=[{}, {}]),
    lambda plan: plan["arms"][1].update(name=7),
    lambda plan: plan["arms"][1].update(overrides=[1]),
    lambda plan: plan["arms"][1].pop("release"),
    lambda plan: plan["arms"][0].pop("speculates"),
    lambda plan: plan["arms"][0].pop("profile"),
    lambda plan: plan["arms"].pop(),
    lambda plan: plan.update(order=[0, 9, 9, 0]),
    lambda plan: plan.update(order=[0, "1", None, 0]),
    lambda plan: plan.update(order={"0": 1}),
    lambda plan: plan.pop("sets"),
    lambda plan: plan.update(sets=3),
    lambda plan: plan.update(workload=None, sets=[["prose"]]),
]


@pytest.mark.parametrize("spoil", range(len(BROKEN)))
def test_a_broken_plan_is_told_by_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], spoil: int
) -> None:
    plan = copy.deepcopy(PLAN)
    BROKEN[spoil](plan)
    stored(plan).close()
    stored(name="r2").close()
    assert call(monkeypatch, "ab", "list") == 0
    assert "r1" in capsys.readouterr().out
    for words in (("ab", "show", "r1"), ("ab", "compare", "r2", "r1"), ("diagnose", "--run", "r1")):
        assert call(monkeypatch, *words) == 1, words
        said = capsys.readouterr().err
        assert "error: run r1 cannot be read" in said and "remedy:" in said, said
    store = Store()
    assert [line.id for line in runs.listing(store)] == ["r2", "r1"]
    try:
        said = runs.about(store, "r1")[0]
    except KdopsError as error:
        said = error.title
    assert "run r1 cannot be read" in said
    store.close()


def spoiled(value: Any) -> st.SearchStrategy[Any]:
    odd = st.sampled_from([None, "x", -1, 0, [], {}, True, 1e300, -0.5, [None], {"a": None}, "\ud800"])
    if isinstance(value, dict):
        whole = st.fixed_dictionaries({}, optional={key: spoiled(cell) for key, cell in value.items()})
    elif isinstance(value, list) and len(value) < 5:
        whole = st.tuples(*[spoiled(cell) for cell in value]).map(list)
    else:
        whole = st.just(value)
    return st.one_of(st.just(value), st.just(value), whole, odd)


@given(
    plan=spoiled(PLAN).filter(lambda value: isinstance(value, dict)),
    sample=spoiled(SAMPLE).filter(lambda value: isinstance(value, dict)),
    evidence=spoiled(EVIDENCE).filter(lambda value: isinstance(value, dict)),
)
def test_whatever_is_stored_is_shown_or_told(
    tmp_path_factory: pytest.TempPathFactory, plan: Any, sample: Any, evidence: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KDOPS_STATE", str(tmp_path_factory.mktemp("state")))
        store = stored(plan, sample, evidence)
        one: StoredRun = store.run("r1")
        assert runs.listing(store)[0].id == "r1"
        for look in (
            lambda: result(one, store),
            lambda: from_run(run_of(one, store, None), store),
            lambda: runs.about(store, "r1"),
            lambda: ab_runs.show("r1", store, as_json=False),
            lambda: ab_runs.show("r1", store, as_json=True),
        ):
            try:
                look()
            except typer.Exit:
                pass
            except KdopsError as error:
                assert error.remedy
        store.close()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_told(state: Path, number: str) -> None:
    stored().close()
    with sqlite3.connect(state / "measurements.sqlite") as raw:
        raw.execute("UPDATE samples SET sample = ?", (f'{{"decode_seconds": {number}}}',))
    with pytest.raises(KdopsError, match="cannot be read") as caught:
        Store().legs("r1")
    assert f"run r1: {number}" in caught.value.cause


def test_a_record_that_is_no_number_is_told(state: Path) -> None:
    Store().add_marks([Mark("2026", "one", "linear", "e", "r", "AL", "w", 3.0)])
    with sqlite3.connect(state / "measurements.sqlite") as raw:
        raw.execute("UPDATE marks SET value = 'x'")
    with pytest.raises(KdopsError, match="cannot be read"):
        Store().marks("one", "linear")


def test_a_noise_floor_that_is_no_number_counts_as_none(state: Path) -> None:
    stored(name="r0", day=1).set_state("r0", "done", {"noise": "much"})
    store = stored()
    assert result(store.run("r1"), store).run == "r1"
    assert floor.known(store.run("r1"), store) == 0


def test_the_noise_floor_is_the_last_a_a_before_a_run(state: Path) -> None:
    store = stored(day=3)
    for day, noise in ((1, 0.1), (2, 0.2), (4, 0.4)):
        stored(name=f"a{day}", day=day).set_state(f"a{day}", "done", {"noise": noise})
    assert floor.known(store.run("r1"), store) == 0.2
