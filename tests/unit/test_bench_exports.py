"""A result for other tools: what they parse is what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from ab_result import result
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kdops.bench.records import RequestRecord, records
from kdops.report.exports import aiperf, openmetrics
from kdops.serving.acceptance import Acceptance
from kdops.store import Store

pytestmark = pytest.mark.unit


def test_openmetrics_is_read_back_by_its_own_parser() -> None:
    made = replace(result(), host='a"b\\c\nd')
    found = {
        (
            sample.name,
            sample.labels.get("arm"),
            sample.labels.get("set") or sample.labels.get("bound"),
        ): sample
        for family in text_string_to_metric_families(openmetrics(made))
        for sample in family.samples
    }
    prose = made.arms[1].per_set["prose"]
    speed = found["kdops_ab_tokens_per_second", "ddtree", "prose"]
    assert speed.value == pytest.approx(prose.tokens_per_second)
    assert speed.labels["host"] == 'a"b\\c\nd' and speed.labels["run"] == made.run
    assert found["kdops_ab_acceptance_length", "ddtree", "prose"].value == prose.acceptance_length
    assert found["kdops_ab_ratio", "ddtree", "low"].value == made.comparisons["ddtree"].low
    assert found["kdops_ab_call", "ddtree", None].labels["call"] == "better"


ONE = RequestRecord(
    arm="ddtree",
    leg=2,
    key="prose/0",
    stage="prose",
    began=1_767_434_400.25,
    ttft=0.1,
    seconds=1.1,
    decode_seconds=1.0,
    prompt_tokens=7,
    completion_tokens=101,
    first_tokens=1,
    acceptance=Acceptance(25, 75, (0, 0, 0, 25)),
    proposed=375,
)


def test_a_request_in_aiperfs_form_keeps_aiperfs_identities() -> None:
    (line,) = aiperf(result(), [ONE]).splitlines()
    told = json.loads(line)
    assert told["metadata"]["request_start_ns"] == 1_767_434_400_250_000_000
    assert told["metadata"]["request_end_ns"] - told["metadata"]["request_start_ns"] == 1_100_000_000
    assert told["metrics"]["output_token_throughput_per_user"] == {"value": 100, "unit": "tokens/sec/user"}
    assert told["metrics"]["inter_token_latency"] == {"value": 10, "unit": "ms"}
    found = told["spec_decode_acceptance"]
    histogram = {int(accepted): steps for accepted, steps in found["acceptance_histogram"].items()}
    assert histogram == {3: 25}, "empty cells are left out"
    assert sum(histogram.values()) == found["num_spec_steps"]
    assert sum(i * n for i, n in histogram.items()) == found["num_accepted_draft_tokens"]
    assert found["num_accepted_draft_tokens"] <= found["num_draft_tokens"]
    assert found["mean_acceptance_length"] == 4 and found["num_spec_tokens"] == 15


def test_what_aiperf_would_refuse_is_left_out() -> None:
    for bad in (
        replace(ONE, acceptance=None),
        replace(ONE, proposed=None),
        replace(ONE, proposed=74),
        replace(ONE, acceptance=Acceptance(25, 75, ())),
    ):
        assert json.loads(aiperf(result(), [bad]))["spec_decode_acceptance"] is None
    assert (
        "inter_token_latency"
        not in json.loads(aiperf(result(), [replace(ONE, decode_seconds=0.0)]))["metrics"]
    )


def test_records_of_a_stored_run_leave_out_what_failed_and_what_does_not_count(tmp_path: Path) -> None:
    store = Store(tmp_path / "m.sqlite")
    plan = {"arms": [{"name": "linear"}], "order": [0], "reference": True}
    store.open_run("r1", "one", "2026-01-01T00:00:00+00:00", plan)
    meta = {"prompt_tokens": 7, "completion_tokens": 5, "spec_verify_ct": 2, "spec_num_proposed_drafts": 14}
    meta |= {"spec_correct_drafts_histogram": [0, 2], "spec_num_correct_drafts": 2}
    good = {"key": "prose/0", "stage": "prose", "ttft": 0.1, "seconds": 0.5, "decode_seconds": 0.4}
    good |= {"first_tokens": 1, "meta": meta}
    cut = store.open_leg("r1", 0)
    store.add_sample("r1", 0, cut, "prose/0", good)
    attempt = store.open_leg("r1", 0)
    store.add_sample("r1", 0, attempt, "prose/0", good)
    store.add_sample("r1", 0, attempt, "prose/1", {**good, "key": "prose/1", "error": "HTTP 400"})
    store.add_sample("r1", 0, attempt, "prose/2", {**good, "key": "prose/2", "meta": None})
    store.close_leg("r1", 0, attempt, {})
    reference = store.open_leg("r1", -1)
    store.add_sample("r1", -1, reference, "prose/0", {**good, "meta": {**meta, "spec_verify_ct": 0}})
    store.close_leg("r1", -1, reference, {})
    found = records(store.run("r1"), store)
    assert [(one.arm, one.leg, one.key) for one in found] == [
        ("autoregressive", 0, "prose/0"),
        ("linear", 1, "prose/0"),
    ]
    assert found[0].acceptance is None
    assert found[1].acceptance == Acceptance(2, 2, (0, 2)) and found[1].proposed == 14
