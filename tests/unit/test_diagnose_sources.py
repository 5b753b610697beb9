"""Documents of other parts as evidence: a measurement, counters, the unit, the host's record."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.diagnose import counters, history, known, measured, unit_text
from kdops.diagnose.apply import diagnose
from kdops.diagnose.evidence import Arm, Counters, Evidence
from kdops.fleet import engine_config, load
from kdops.store import Mark, Store

pytestmark = pytest.mark.unit

REPORT: dict[str, Any] = {
    "run": "20261129-1",
    "plan": {
        "arms": [
            {"name": "linear", "profile": "linear", "overrides": {"engine_block_size": "8"}},
            {"name": "ddtree", "profile": "ddtree", "overrides": {"engine_tree_budget": "32"}},
            {"name": "autoregressive", "profile": "autoregressive", "overrides": {}},
        ]
    },
    "arms": [
        {
            "name": "linear",
            "lossless": "identical",
            "per_set": {
                "prose": {"tokens_per_second": 100, "acceptance_length": 3.0, "histogram": [9, 9, 9, 9]},
                "code": {"tokens_per_second": 144, "acceptance_length": 4.0, "histogram": [0, 0, 0, 9]},
                "long": {"tokens_per_second": 90, "acceptance_length": 3.0, "histogram": []},
            },
            "context": [
                {"prompt_tokens": 64, "tokens_per_second": 100, "acceptance_length": 3.0, "step_time": 0.03},
                {"prompt_tokens": 65536, "tokens_per_second": 6, "acceptance_length": 3.0, "step_time": 0.5},
            ],
            "floor": {"base": 0.01, "per_token": 4.4e-8, "gpu": "x"},
        },
        {"name": "ddtree", "per_set": {"prose": {"tokens_per_second": 50, "acceptance_length": 3.3}}},
        {
            "name": "autoregressive",
            "per_set": {"prose": {"tokens_per_second": 60, "acceptance_length": None}},
            "context": [{"prompt_tokens": 64, "tokens_per_second": 60, "acceptance_length": 1.0}],
        },
    ],
    "findings": [
        {"title": "foreign requests came in", "evidence": "3 of 2", "where": "linear, leg 1"},
        {"title": "short burst flatters", "evidence": "short against long", "where": "linear"},
    ],
    "leg_gpus": [
        None,
        {"busy": 0.4, "sm_clock": 900, "max_clock": 2430, "reasons": ["hardware thermal slowdown"]},
    ],
}


def test_a_measurement_becomes_arms_and_stretches() -> None:
    told = measured.from_document(REPORT)
    linear, tree, plain = told.measurement.arms
    assert (linear.algorithm, linear.rows, linear.lossless) == ("DFLASH", 8, "identical")
    assert linear.speed == pytest.approx(120)
    assert (tree.algorithm, tree.rows) == ("DDTREE", 32)
    assert (plain.algorithm, plain.al) == ("autoregressive", None)
    assert told.floor == 4.4e-8
    assert {s.text for s in told.stretches if s.arm == "linear"} == {"prose", "code", "long", "context"}
    assert [s.acceptance_length for s in told.stretches if s.arm == "autoregressive"] == [None, None]


def test_its_findings_follow() -> None:
    told = measured.from_document(REPORT)
    found = diagnose(
        Evidence(stretches=told.stretches, measurement=told.measurement, gpus=told.gpus, floor=told.floor)
    )
    assert [finding.id for finding in found] == [
        "foreign-load",
        "clocks-throttled",
        "verify-not-split",
        "tree-too-wide",
        "short-burst-flatters",
    ]


def mutations() -> st.SearchStrategy[Any]:
    odd = st.sampled_from([None, "x", -1, 0, 10**400, [], {}, True, 1e400, float("nan"), [None], {"a": None}])

    def spoil(value: Any) -> st.SearchStrategy[Any]:
        if isinstance(value, dict):
            whole = st.fixed_dictionaries({key: spoil(cell) for key, cell in value.items()})
        elif isinstance(value, list):
            whole = st.tuples(*[spoil(cell) for cell in value]).map(list)
        else:
            whole = st.just(value)
        return st.one_of(whole, whole, whole, odd)

    return spoil(REPORT).filter(lambda value: isinstance(value, dict))


@given(mutations())
def test_odd_values_in_a_measurement_are_left_out(document: dict[str, Any]) -> None:
    told = measured.from_document(document)
    diagnose(
        Evidence(stretches=told.stretches, measurement=told.measurement, gpus=told.gpus, floor=told.floor)
    )


def sample(cached: int, steps: int, accepted: int, stage: str = "code") -> dict[str, Any]:
    meta = {"prompt_tokens": 900, "cached_tokens": cached, "spec_verify_ct": steps}
    return {"stage": stage, "decode_seconds": 1.0, "meta": {**meta, "spec_num_correct_drafts": accepted}}


def test_prefix_hits_are_compared_within_a_stage() -> None:
    told = [("linear", sample(0, 50, 150)), ("linear", sample(896, 100, 20)), ("linear", sample(0, 50, 140))]
    cold, warm = measured.prefix_hits(told)
    assert (cold.cached, round(cold.acceptance_length or 0, 2)) == (0, 3.9)
    assert round(warm.acceptance_length or 0, 2) == 1.2
    assert diagnose(Evidence(stretches=(cold, warm)))[0].id == "draft-kv-after-prefix-hit"
    assert measured.prefix_hits([("linear", sample(0, 50, 150)), ("linear", {"meta": None})]) == ()


def test_counters_of_an_engine() -> None:
    text = (
        "# TYPE kdtree_steps_total counter\nkdtree_steps_total 100.0\nkdtree_broken_steps_total 2.0\n"
        'kdtree_accepted_at_total{position="1"} 80.0\nkdtree_accepted_at_total{position="2"} 40.0\n'
        'kdtree_fallback_steps_total{reason="penalties"} 7.0\nsglang:generation_tokens_total 321.0\n'
    )
    assert counters.parse(text) == Counters(100, 2, (80, 40), {"penalties": 7}, 321, None)


@given(st.text(max_size=300))
def test_any_text_is_no_counters(text: str) -> None:
    counters.parse(text)


@pytest.mark.parametrize(
    ("text", "quota"),
    [("500ms", 0.5), ("1s", 1.0), ("1s 500ms", 1.5), ("infinity", None), ("", None), ("1..2s", None)],
)
def test_the_cpu_quota_in_systemds_words(text: str, quota: float | None) -> None:
    assert unit_text.unit(f"CPUQuotaPerSecUSec={text}").cpu_quota == quota


def test_the_unit_and_its_control_group() -> None:
    told = unit_text.unit(
        "ActiveState=active\nNRestarts=3\nCPUQuotaPerSecUSec=500ms\nnr_periods 200\nnr_throttled 150\n"
    )
    assert (told.active, told.restarts, told.throttled) == ("active", 3, 0.75)
    assert diagnose(Evidence(unit=told))[0].id == "cpu-limited"


def mark(day: int, value: float, release: str, quantity: str = "AL", basis: str = "w1") -> Mark:
    return Mark(f"2026-11-{day:02d}", "lab0", "linear", "e" + release, release, quantity, basis, value)


def test_a_release_is_compared_with_the_ones_before() -> None:
    marks = [mark(1, 3.1, "a"), mark(2, 3.2, "a"), mark(3, 3.3, "b"), mark(4, 1.0, "c"), mark(5, 1.0, "c")]
    (past,) = history.pasts(marks)
    assert (past.before, past.now, past.release, past.previous) == ((3.1, 3.2, 3.3), 1.0, "c", "b")
    # O27: an upgrade after which every draft is rejected
    finding = diagnose(Evidence(past=(past,)))[0]
    assert finding.id == "outside-history"
    assert "every draft is rejected" in finding.cause
    assert "release c, before it b" in finding.evidence


def test_other_workloads_and_single_releases() -> None:
    marks = [mark(1, 9.0, "a", basis="w0"), mark(2, 3.1, "a"), mark(3, 3.2, "a")]
    (past,) = history.pasts(marks)
    assert (past.before, past.now, past.previous) == ((3.1,), 3.2, "")
    assert history.pasts([]) == ()


def test_the_record_is_kept_once_and_by_host_and_profile(tmp_path: Path) -> None:
    store = Store(tmp_path / "m.sqlite")
    arm = Arm("linear", "DFLASH", 100, 3.2, 0.032)
    marks = history.of_arm(arm, "2026-11-01", "lab0", "e1", "a", "w1")
    for _ in range(2):
        store.add_marks(marks)
    assert [(m.quantity, m.value) for m in store.marks("lab0", "linear")] == [
        ("step time", 0.032),
        ("AL", 3.2),
    ]
    assert store.marks("lab1", "linear") == store.marks("lab0", "ddtree") == []
    store.close()


def test_settings_that_matter_are_compared() -> None:
    good = {"memory_fraction": 0.8, "page_size": 1, "user": "a"}
    found = known.changes(good, {"memory_fraction": 0.9, "page_size": 1, "user": "b"})
    assert [(c.setting, c.before, c.after) for c in found] == [("memory_fraction", 0.8, 0.9)]


def test_the_floor_of_a_known_model() -> None:
    host = load(None).one("ct200")
    config = engine_config(host, "linear", {})
    floor, pool = known.memory(host, config)
    assert floor == pytest.approx(70272 / 1.597e12)
    assert pool and pool > 100_000
    drafter = known.drafter(host, config)
    assert drafter is not None and drafter.block_size == 8
    assert known.drafter(host, engine_config(host, "autoregressive", {})) is None


def test_the_drafter_s_own_config_json_is_read_where_the_inventory_holds_none(tmp_path: Path) -> None:
    host = load(None).one("ct200")
    written = host.variables["engine_draft_facts"]["config"]
    (tmp_path / "config.json").write_text(json.dumps({**written, "sliding_window": 2048}))
    variables = {name: value for name, value in host.variables.items() if name != "engine_draft_facts"}
    host = dataclasses.replace(host, variables=variables)
    config = dataclasses.replace(engine_config(host, "linear", {}), draft_model=str(tmp_path))
    drafter = known.drafter(host, config)
    assert drafter is not None
    assert drafter.sliding_window == 2048


def test_the_documents_are_plain_json() -> None:
    json.dumps(REPORT, allow_nan=False)
