"""The field's three stories as data: the right first finding, without the one that was believed then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kdops.diagnose.apply import diagnose
from kdops.diagnose.evidence import Arm, Evidence, GpuUse, Journal, Measurement, Stretch
from kdops.diagnose.finding import Confidence, Finding
from kdops.diagnose.journal import read
from kdops.fleet.gpus import BY_ID

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parent.parent / "scenarios"
STORIES: dict[str, Any] = yaml.safe_load((FOLDER / "stories.yml").read_text())


def base(story: dict[str, Any], gpu: str | None = None, **more: Any) -> Evidence:
    found = BY_ID[gpu or story["gpu"]]
    return Evidence(
        host="ct200",
        profile="linear",
        gpu=found,
        floor=STORIES["kv_bytes_per_token"] / found.bandwidth,
        **more,
    )


def journal(story: dict[str, Any]) -> Journal:
    with (FOLDER / story["journal"]).open("rb") as file:
        return read(file)


def ids(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.id for finding in findings]


def blames(findings: tuple[Finding, ...], word: str) -> bool:
    """Is `word` part of what a finding asserts? What is excluded may name it."""
    return any(word in text for f in findings for text in (f.title, f.cause, f.remedy))


def story1() -> tuple[Finding, ...]:
    story = STORIES["story1"]
    stretches = [
        *(Stretch("sweep", text="context", arm="linear", **point) for point in story["sweep"]),
        *(Stretch("two-point", arm="linear", text="repetitive", **point) for point in story["bursts"]),
        Stretch("request", arm="linear", text="reasoning", **story["request"]),
    ]
    return diagnose(
        base(
            story,
            stretches=tuple(stretches),
            journal=journal(story),
            asked_tokens=story["asked_tokens"],
        )
    )


def test_throughput_fell_from_138_to_32() -> None:
    findings = story1()
    assert ids(findings)[0] == "verify-not-split"  # step time grows with context
    assert {"text-dependent-acceptance", "short-burst-flatters", "incomplete-source"} < set(ids(findings))
    assert not blames(findings, "parser")


def test_the_journal_of_story_1_gives_its_coverage_and_no_verdict() -> None:
    findings = story1()
    coverage = next(f for f in findings if f.id == "incomplete-source").evidence[0]
    assert "237 steps commit 692 of 1,500 tokens, coverage 46%" in coverage
    assert "AL 2.92 is an estimate" in coverage
    assert not any("AL 2.92" in text for text in findings[0].evidence)


def test_the_burst_of_story_1_is_taken_apart() -> None:
    burst = next(f for f in story1() if f.id == "short-burst-flatters").evidence[0]
    assert "AL 5.00 and 2.92, step time 44 ms and 89 ms" in burst


def arm(name: str, algorithm: str, told: dict[str, Any], graphs: bool) -> Arm:
    al, speed = told["al"], told["speed"]
    return Arm(name, algorithm, speed, al, al / speed, told["rows"], told.get("topk"), graphs)


def test_depth_5_and_commit_2() -> None:
    story = STORIES["story2"]
    tree, linear, graphs = story["tree"], story["linear"], story["linear_with_graphs"]
    arms = (
        arm("ddtree", "DDTREE", tree, False),
        arm("linear", "DFLASH", linear, False),
        arm("linear[graphs]", "DFLASH", graphs, True),
    )
    findings = diagnose(base(story, journal=journal(story), measurement=Measurement("notes", arms)))
    assert ids(findings)[0] == "broken-invariant"
    first = findings[0]
    assert first.confidence is Confidence.CERTAIN
    assert "avg_accepted_depth=5.00" in first.evidence[1]
    assert "ddtree-chain" in first.next_experiment
    assert {"tree-below-chain", "unlike-arms"} < set(ids(findings))


def story3(gpu: str | None = None, slope: float | None = None) -> tuple[Finding, ...]:
    story = STORIES["story3"]
    points = [(c, 0.008 + (c - 1400) * slope if slope else t) for c, t in story["steps"]]
    stretches = [Stretch("journal", c, 1 / t, 1.0, arm="ddtree") for c, t in points]
    busy = GpuUse("nvidia-smi", busy=story["busy"])
    return diagnose(base(story, gpu, stretches=tuple(stretches), journal=journal(story), gpus=(busy,)))


def test_three_quarters_of_a_token_a_second() -> None:
    findings = story3()
    # a metric that breaks its own definition stops the line; then the bug's signature; then the slow step
    assert ids(findings) == ["broken-invariant", "flat-commit", "verify-not-split"]
    assert not blames(findings, "undertrained")
    assert any("undertrained" in text for text in findings[1].excluded)


def test_the_cause_is_probable_on_a_host_where_it_was_not_measured() -> None:
    slope = next(f for f in story3() if f.id == "verify-not-split")
    assert slope.confidence is Confidence.PROBABLE
    assert "7.75 ms each 1,000 tokens" in slope.evidence[0]
    assert "176 times less" in slope.evidence[1]
    assert "engine_verify_attention=stock,kdtree" in slope.next_experiment
    assert "engine_page_size=1,64" in slope.next_experiment
    # page size was measured for another GPU: here it is neither blamed nor excluded
    assert not any(text.startswith("page size") for text in slope.excluded)
    assert "whether the page size plays a part here is not known" in slope.cause


def test_on_the_gpu_where_it_was_measured_the_page_size_is_out() -> None:
    story = STORIES["story3"]
    slope = next(f for f in story3("h200-sxm", story["h200_slope"]) if f.id == "verify-not-split")
    assert any(text.startswith("page size") for text in slope.excluded)
    assert slope.confidence is Confidence.PROBABLE


def test_two_kernels_on_that_host_decide() -> None:
    story = STORIES["story3"]
    stretches = [
        Stretch("run", context, 1 / (0.008 + context * slope), 1.4, arm=f"linear[verify_attention={kernel}]")
        for kernel, slope in (("stock", 7.7e-6), ("kdtree", 0.1e-6))
        for context in (1400, 185_000)
    ]
    found = next(f for f in diagnose(base(story, stretches=tuple(stretches))) if f.id == "verify-not-split")
    assert found.confidence is Confidence.CERTAIN
    assert not found.next_experiment


def test_the_page_size_result_is_not_carried_over_to_a_split_kernel() -> None:
    story = STORIES["story3"]
    points = tuple(
        Stretch("run", context, 1 / (0.008 + context * 7.7e-6), 2.0, arm="linear[verify_attention=kdtree]")
        for context in (1400, 185_000)
    )
    findings = diagnose(base(story, "h200-sxm", stretches=points))
    assert ids(findings) == ["slope-above-floor"]
    assert not any("page size" in text for text in findings[0].excluded)
