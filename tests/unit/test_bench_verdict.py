"""From samples to a verdict, and every way to lose it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kdops.bench.arms import Arm, parse
from kdops.bench.floor import noise
from kdops.bench.leg import Leg, analyse
from kdops.bench.orders import draw
from kdops.bench.results import Call, Lossless, RunResult
from kdops.bench.verdict import REFERENCE_LEG, build
from kdops.errors import ExitCode, UsageError
from kdops.report import terminal
from kdops.report.document import document
from kdops.report.html import page

pytestmark = pytest.mark.unit
Edit = Callable[[dict[str, Any]], None]
NAN = float("nan")


def sample(key: str, step_time: float, commit: int, ids: int = 0) -> dict[str, Any]:
    """101 tokens in 100 / commit steps of `step_time` seconds."""
    steps = 100 // commit
    meta: dict[str, Any] = {"prompt_tokens": 5, "completion_tokens": 101}
    if commit > 1:
        meta |= {"spec_verify_ct": steps, "spec_num_correct_drafts": steps * (commit - 1)}
        meta["spec_correct_drafts_histogram"] = [0] * (commit - 1) + [steps]
    return {
        "key": key,
        "stage": key.split("/")[0],
        "asked": 101,
        "ttft": 0.1,
        "seconds": 0.1 + steps * step_time,
        "decode_seconds": steps * step_time,
        "first_tokens": 1,
        "gaps": [step_time] * steps,
        "meta": meta,
        "output_ids": [ids] * 101,
    }


def evidence(after: float = 2.0) -> dict[str, Any]:
    counter = "sglang:num_requests_total {}\n"
    stage = {"name": "prose", "requests": 2, "before": counter.format(0.0), "after": counter.format(after)}
    return {"client": {"wall_seconds": 10.0, "cpu_seconds": 0.1}, "stages": [stage]}


def leg(
    name: str, position: int, step_time: float, commit: int, edit: Edit | None = None, **told: Any
) -> Leg:
    samples = [sample(f"{s}/0", step_time, commit, told.get("ids", 0)) for s in ("prose", "code")]
    if edit:
        edit(samples[0])
    speculates = told.get("speculates", commit > 1)
    return analyse(
        name, position, speculates=speculates, samples=samples, evidence=told.get("seen", evidence())
    )


def plan(
    order: tuple[int, ...], releases: tuple[str, str] = ("r1", "r2"), dtype: str = "float32"
) -> dict[str, Any]:
    arms = [
        {"name": n, "profile": n, "overrides": {}, "release": r, "speculates": True, "dtype": dtype}
        for n, r in zip(("linear", "ddtree"), releases, strict=True)
    ]
    return {
        "arms": arms,
        "order": list(order),
        "quick": False,
        "sets": ["prose", "code"],
        "workload": "w" * 64,
    }


ORDER = draw(2, 4, 11)


def run(
    edit: Edit | None = None,
    *,
    seen: Mapping[str, Any] | None = None,
    ids: int = 0,
    dtype: str = "float32",
    floor: float = 0.0,
    **planned: Any,
) -> RunResult:
    """linear: commit 4 in 40 ms; ddtree: commit 5 in 44 ms, with a little noise. `edit` breaks one sample.

    planned: parts of the plan.
    """
    legs = {REFERENCE_LEG: leg("autoregressive", REFERENCE_LEG, 0.03, 1)}
    for i, arm in enumerate(ORDER):
        step = (0.040, 0.044)[arm] * (1 + 0.001 * ((i * 3) % 4))
        last = i == 7
        legs[i] = leg(
            ("linear", "ddtree")[arm],
            i,
            step,
            (4, 5)[arm],
            edit if last else None,
            ids=ids if last else 0,
            seen=seen if seen and last else evidence(),
        )
    made = {**plan(ORDER, dtype=dtype), **planned}
    return build("r", "lab0", "2026-01-01T00:00:00+00:00", made, legs, floor)


def test_a_better_arm_is_better_and_the_why_is_the_split() -> None:
    result = run()
    one = result.comparisons["ddtree"]
    assert one.call is Call.BETTER and result.exit_code == ExitCode.OK and result.valid
    assert one.ratio == pytest.approx((5 / 0.044) / (4 / 0.040), rel=0.01)
    assert "AL ×1.25" in one.why and "step time ×1.10" in one.why
    assert {s: c.call for s, c in result.per_set["ddtree"].items()} == {
        "prose": Call.BETTER,
        "code": Call.BETTER,
    }
    assert all(arm.lossless is Lossless.IDENTICAL for arm in result.arms)
    rate = result.arms[1].per_set["prose"]
    assert rate.acceptance_length == pytest.approx(5.0) and rate.step_time == pytest.approx(0.044, rel=0.01)


def set_meta(**values: Any) -> Edit:
    return lambda s: s["meta"].update(values)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (set_meta(spec_verify_ct=24), "histogram"),
        (set_meta(spec_num_correct_drafts=3), "accepted drafts"),
        (set_meta(completion_tokens=90), "asked"),
        (set_meta(completion_tokens=NAN), "meta_info"),
        (set_meta(completion_tokens=None), "meta_info"),
        (set_meta(prompt_tokens="5"), "meta_info"),
        (set_meta(spec_verify_ct=0), "no verify step"),
        (lambda s: s.update(meta=None), "meta_info"),
        (lambda s: s.update(output_ids=[1]), "token ids"),
        (lambda s: s.update(error="HTTP 400: too long"), "too long"),
        (lambda s: s.update(decode_seconds=0.0), "one piece"),
    ],
)
def test_a_broken_sample_turns_the_verdict_off_and_names_the_leg(edit: Edit, said: str) -> None:
    result = run(edit)
    assert not result.valid and result.exit_code == ExitCode.INCONCLUSIVE
    finding = next(one for one in result.findings if one.fatal)
    assert said in finding.evidence and finding.where.endswith("leg 8")
    assert all(one.call is Call.INCONCLUSIVE for one in result.comparisons.values())


def test_a_set_whose_texts_all_end_at_once_is_left_out_for_every_arm() -> None:
    def ends(made: Leg) -> Leg:
        return replace(made, stages={k: v for k, v in made.stages.items() if k != "code"})

    speeds = ((0.040, 4), (0.044, 5))
    legs = {i: leg(("linear", "ddtree")[arm], i, *speeds[arm]) for i, arm in enumerate(ORDER)}
    legs[REFERENCE_LEG] = leg("autoregressive", REFERENCE_LEG, 0.03, 1)
    short = {i: ends(made) for i, made in legs.items()}
    result = build("r", "lab0", "2026-01-01T00:00:00+00:00", plan(ORDER), short, 0.0)
    assert result.comparisons["ddtree"].call is Call.BETTER and list(result.per_set["ddtree"]) == ["prose"]
    assert result.arms[1].lossless is Lossless.IDENTICAL
    some = build("r", "lab0", "2026-01-01T00:00:00+00:00", plan(ORDER), {**legs, 3: short[3]}, 0.0)
    assert some.comparisons == {} and some.exit_code == ExitCode.INCONCLUSIVE


def test_foreign_requests_and_a_slow_client_turn_it_off() -> None:
    assert "foreign" in next(f for f in run(seen=evidence(after=3.0)).findings if f.fatal).title
    busy = {**evidence(), "client": {"wall_seconds": 10.0, "cpu_seconds": 8.0}}
    assert "could not keep up" in next(f for f in run(seen=busy).findings if f.fatal).title
    cut = {**evidence(), "client": None}
    assert not run(seen=cut).valid


def test_other_tokens_are_not_lossless_in_fp32_and_undecided_elsewhere() -> None:
    result = run(ids=1)
    assert result.exit_code == ExitCode.NOT_LOSSLESS
    broken = next(arm for arm in result.arms if arm.lossless is Lossless.DIFFERENT)
    assert "prose/0 at token 1" in broken.lossless_why
    undecided = run(ids=1, dtype="bfloat16")
    assert undecided.exit_code == ExitCode.OK
    assert Lossless.UNDECIDED in {arm.lossless for arm in undecided.arms}


def test_only_greedy_sets_tell_whether_an_arm_is_lossless() -> None:
    result = run(ids=1, sampling={"prose": {"temperature": 0.7}, "code": {"temperature": 0.7}})
    assert result.exit_code == ExitCode.OK
    assert {arm.lossless for arm in result.arms} == {Lossless.UNCHECKED}
    assert "sampling: temperature 0.7" in terminal.verdicts(result)
    assert "sampling: temperature 0.7." in page(result)
    assert document(result)["sampling"]["prose"]["temperature"] == 0.7
    mixed = run(ids=1, sampling={"prose": {"temperature": 0.7}})
    assert mixed.exit_code == ExitCode.NOT_LOSSLESS
    why = next(arm.lossless_why for arm in mixed.arms if arm.lossless is Lossless.DIFFERENT)
    assert "code/0 at token 1" in why and "prose/0" not in why
    assert why.endswith("sampled, so not compared: prose")
    assert "sampling: prose temperature 0.7; code greedy" in terminal.verdicts(mixed)
    assert "sampling: greedy" in terminal.verdicts(run())


def test_an_arm_that_cannot_sample_is_no_match_for_one_that_does() -> None:
    linear = {"arms": [{**arm, "samples": arm["name"] != "linear"} for arm in plan(ORDER)["arms"]]}
    assert run(**linear).valid, "greedy sets are the same for both"
    result = run(**linear, sampling={"prose": {"temperature": 0.7}})
    finding = next(one for one in result.findings if one.fatal)
    assert (finding.title, finding.where) == ("an arm did not sample", "linear")
    assert result.exit_code == ExitCode.INCONCLUSIVE


def test_the_noise_floor_comes_from_an_a_a_run_and_holds() -> None:
    result = run()
    assert noise(result) is None
    same = replace(result, arms=tuple(replace(arm, release="r") for arm in result.arms))
    assert noise(same) == pytest.approx(0.13, abs=0.01)
    assert run(floor=0.5).comparisons["ddtree"].call is Call.INCONCLUSIVE


def test_the_reports_hold_the_verdict_and_nothing_from_outside() -> None:
    broken = terminal.verdicts(run(set_meta(spec_verify_ct=24)))
    assert broken[0] == "ddtree against linear: INCONCLUSIVE: a prompt set is missing in a leg"
    result = run(seen=evidence(after=3.0))
    result = replace(result, host="<script>alert(1)</script>")
    text = page(result)
    assert "<script" not in text and "http" not in text
    assert "check failed" in text and "prefers-color-scheme" in text and "@media print" in text
    assert text.count("<svg") >= 4
    told = json.loads(json.dumps(document(result), allow_nan=False))
    assert told["schema"] == 1 and told["valid"] is False
    assert any("INCONCLUSIVE" in line for line in terminal.verdicts(result))
    assert len({len(row) for row in terminal.rows(result)}) == 1


def test_arms_from_words() -> None:
    assert parse(["linear", "linear"], []) == (Arm("linear", "linear", {}), Arm("linear#2", "linear", {}))
    arms = parse(["ddtree"], ["ddtree:engine_tree_budget=8,16,32"])
    assert [arm.name for arm in arms] == [f"ddtree[tree_budget={n}]" for n in (8, 16, 32)]
    assert arms[2].overrides == {"engine_tree_budget": "32"}
    everywhere = parse(["linear", "ddtree"], ["engine_page_size=1"])
    assert all(arm.overrides == {"engine_page_size": "1"} for arm in everywhere)


@pytest.mark.parametrize("bad", ["x", "other:k=1", ":k=1", "k=", "=1", "linear:=1"])
def test_a_setting_that_cannot_be_read(bad: str) -> None:
    with pytest.raises(UsageError):
        parse(["linear", "ddtree"], [bad])
