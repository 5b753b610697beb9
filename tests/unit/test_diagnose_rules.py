"""Each rule: evidence that shows it, and evidence that is healthy or explained otherwise."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest

from kdops.diagnose.apply import diagnose
from kdops.diagnose.evidence import (
    Arm,
    Change,
    Counters,
    Drafter,
    Evidence,
    GpuUse,
    Journal,
    LastDeploy,
    Measurement,
    Past,
    Settings,
    Stretch,
    Tree,
    Unit,
    Window,
)
from kdops.diagnose.failures import classify
from kdops.diagnose.finding import Confidence, Finding
from kdops.diagnose.rules.table import IDS
from kdops.diagnose.summary import seen
from kdops.fleet import engine_config, load
from kdops.fleet.gpus import BY_ID
from kdops.fleet.settings import values

pytestmark = pytest.mark.unit

GPU = BY_ID["rtx-pro-6000-blackwell-server"]
FLOOR = 70272 / GPU.bandwidth
HISTOGRAM = (40, 60, 80, 60, 40, 20, 10, 10)  # AL 3.5, each position reached and accepted often enough


def mean(histogram: tuple[int, ...]) -> float:
    return 1 + sum(i * n for i, n in enumerate(histogram)) / sum(histogram)


def point(
    context: float,
    step_time: float = 0.03,
    histogram: tuple[int, ...] = HISTOGRAM,
    *,
    text: str = "context",
    arm: str = "linear",
    generated: int = 128,
    cached: int | None = None,
) -> Stretch:
    al = mean(histogram)
    return Stretch("run", context, al / step_time, al, generated, text, arm, cached, histogram)


def plain(context: float, step_time: float) -> Stretch:
    return Stretch("run", context, 1 / step_time, None, 128, "context", "autoregressive")


def generation(steps: list[tuple[int, float, float]]) -> Journal:
    return Journal(windows=len(steps), generations=(tuple(Window(t, 1, s, al) for t, s, al in steps),))


def arm(name: str, al: float, step: float, **more: Any) -> Arm:
    algorithm = "DFLASH" if name.startswith("linear") else "DDTREE"
    told = {"rows": 8, "topk": 1 if "chain" in name else 4, "graphs": True, "lossless": "identical", **more}
    return Arm(name, algorithm, al / step, al, step, **told)


def measured(*arms: Arm, doubts: tuple[tuple[str, str], ...] = ()) -> Measurement:
    return Measurement("20261129-1", arms, doubts)


def requested(**changed: Any) -> dict[str, Any]:
    host = load(None).one("ct200")
    return {**values(engine_config(host, "linear", {})), **changed}


HEALTHY = Evidence(
    host="ct200",
    profile="linear",
    gpu=GPU,
    floor=FLOOR,
    predicted_pool=350_000,
    stretches=(
        *(point(context, 0.030 + 2 * FLOOR * context) for context in (64, 1024, 4096, 16384, 185_000)),
        point(60, text="prose"),
        point(60, text="code", histogram=(20, 40, 60, 60, 60, 40, 20, 20)),
        point(60, text="long", generated=1536),
        *(plain(context, 0.028 + 2 * FLOOR * context) for context in (64, 1024, 4096, 16384)),
    ),
    journal=dataclasses.replace(
        generation([(1000 + 120 * i, 0.03, 3.2) for i in range(20)]),
        lines=1000,
        graph_windows=20,
        tree=Tree(20, 0, 0, 3.2, 2.2, 32),
        pool=352_000,
        context=200_000,
        starts=(450.0,),
    ),
    counters=Counters(10_000, 0, (8000, 6000), {"penalties": 0}, 32_000, 10_000),
    settings=Settings(requested(), {"page_size": 1, "mem_fraction_static": 0.9}),
    drafter=Drafter(8, 262_144, None),
    gpus=(GpuUse("run", 0.95, 2300, 2430, 400, 70, ()),),
    unit=Unit("active", 0, None, None, ()),
    measurement=measured(
        arm("linear", 3.2, 0.030), arm("ddtree", 3.9, 0.033, rows=32), arm("ddtree-chain", 3.2, 0.0305)
    ),
    past=(Past("AL", (3.1, 3.3, 3.2), 3.2, "linear-1", "linear-0"),),
)

Build = Callable[[], Evidence]


def but(**changed: Any) -> Evidence:
    return dataclasses.replace(HEALTHY, **changed)


FAR_CUT = (40, 60, 80, 220, 0, 0, 0, 0)
FALLEN = (290, 20, 10, 0, 0, 0, 0, 0)
POOR = (180, 100, 30, 10, 0, 0, 0, 0)
CHANCE = (310, 8, 2, 0, 0, 0, 0, 0)

CASES: dict[str, Evidence] = {
    "not-lossless": but(measurement=measured(arm("ddtree", 3.9, 0.02, lossless="not lossless"))),
    "broken-invariant": but(counters=Counters(10_000, 3)),
    "flat-commit": but(
        stretches=(point(60, histogram=(300, 0, 0)),), journal=Journal(windows=9, flat_windows=9), past=()
    ),
    "foreign-load": but(
        measurement=measured(doubts=(("foreign requests came in", "code: 3 were sent, 5 counted"),))
    ),
    "effective-differs": but(settings=Settings(requested(), {"mem_fraction_static": 0.83})),
    "kv-pool-below-context": but(
        journal=Journal(pool=60_000, context=160_000, refused=4), predicted_pool=None
    ),
    "tree-below-chain": but(
        measurement=measured(arm("linear", 3.75, 0.04), arm("ddtree", 1.75, 0.035, rows=32))
    ),
    "chain-unlike-linear": but(
        measurement=measured(arm("linear", 3.75, 0.04), arm("ddtree-chain", 2.0, 0.04))
    ),
    "chain-slower-than-linear": but(
        measurement=measured(arm("linear", 3.2, 0.03), arm("ddtree-chain", 3.2, 0.035))
    ),
    "unproven-gain": but(
        past=(Past("AL", (3.1, 3.3, 3.2), 5.0),),
        measurement=measured(arm("ddtree", 5, 0.03, lossless="undecided")),
    ),
    "cpu-limited": but(unit=Unit("active", 0, 1.0, 0.6, ("drop-in /run/systemd/x/50-CPUQuota.conf",))),
    "clocks-throttled": but(gpus=(GpuUse("run", 0.9, 900, 2430, 300, 93, ("hardware thermal slowdown",)),)),
    "verify-not-split": but(stretches=tuple(point(c, 0.008 + 7.7e-6 * c) for c in (1400, 32_000, 185_000))),
    "slope-above-floor": but(
        stretches=tuple(point(c, 0.008 + 7.7e-6 * c) for c in (1400, 32_000, 185_000)),
        settings=Settings({"verify_attention": "kdtree"}),
    ),
    "draft-kv-after-prefix-hit": but(
        stretches=(
            point(900, text="code", cached=0),
            point(900, text="code", cached=896, histogram=(280, 30, 10, 0)),
        )
    ),
    "sliding-window-not-applied": but(stretches=(point(512), point(8192, histogram=FAR_CUT))),
    "draft-beyond-training": but(
        stretches=(point(512), point(64_000, histogram=FALLEN)),
        drafter=Drafter(8, 8192, None),
        settings=Settings(requested(draft_window=None)),
    ),
    "drafter-mismatch": but(
        stretches=tuple(point(60, text=text, histogram=CHANCE) for text in ("code", "prose", "repetitive")),
        past=(),
    ),
    "draft-input": but(
        stretches=tuple(point(60, text=text, histogram=POOR) for text in ("code", "prose", "repetitive")),
        past=(Past("AL", (6.2, 6.4, 6.3), 6.3),),
        measurement=None,
    ),
    "verify-other-logits": but(
        journal=generation([(1000 + 100 * i, 0.03, max(1.0, 4.0 - 0.25 * i)) for i in range(24)]),
        penalties=True,
    ),
    "outside-history": but(past=(Past("AL", (3.1, 3.3, 3.2), 1.0, "linear-2", "linear-1"),)),
    "speculation-loses": but(
        stretches=(
            *(plain(c, 0.013) for c in (1024, 32_768, 131_072)),
            *(point(c, 0.02 + 3e-7 * c) for c in (1024, 32_768, 131_072)),
        )
    ),
    "tree-too-wide": but(measurement=measured(arm("linear", 3.2, 0.030), arm("ddtree", 3.4, 0.045, rows=33))),
    "host-bound": but(gpus=(GpuUse("run", 0.3, 2300, 2430),)),
    "eager-mode": but(journal=Journal(windows=20, eager_windows=20)),
    "fallback-active": but(counters=Counters(10_000, 0, (), {"penalties": 4000})),
    "prefix-cache-off": but(settings=Settings(requested(extra_args={"disable-radix-cache": True}))),
    "step-time-growth": but(
        stretches=(),
        journal=generation([(2700 + 75 * i, 0.044 + 0.0022 * i, 2.9) for i in range(20)]),
    ),
    "not-running": but(unit=Unit("inactive")),
    "unknown-failure": but(unit=Unit("failed", 3)),
    "unlike-arms": but(
        measurement=measured(arm("linear", 3.2, 0.03), arm("ddtree", 3.3, 0.03, graphs=False))
    ),
    "text-dependent-acceptance": but(
        stretches=(point(60, text="repetitive", histogram=(0, 0, 0, 0, 0, 0, 0, 99)),),
        journal=generation([(1000 + 40 * i, 0.03, 2.9) for i in range(20)]),
    ),
    "short-burst-flatters": but(
        stretches=(point(60, 0.030, text="prose"), point(60, 0.045, text="long", generated=1536))
    ),
    "deploy-failed": but(
        failed_deploy=LastDeploy("linear-2", "not ready", "another page size than asked for", "set it")
    ),
    "pool-prediction-off": but(predicted_pool=400_000),
    "incomplete-source": but(journal=Journal(suppressed=12_000)),
}


def ids(evidence: Evidence) -> list[str]:
    return [finding.id for finding in diagnose(evidence)]


def find(evidence: Evidence, id_: str) -> Finding:
    return next(finding for finding in diagnose(evidence) if finding.id == id_)


def test_a_healthy_engine_gets_no_finding() -> None:
    assert diagnose(HEALTHY) == ()


def test_what_was_seen_is_said_without_a_finding() -> None:
    told = "\n".join(seen(HEALTHY))
    assert "unit active, restarts 0" in told
    assert (
        "linear: 30.0 ms at 64 tokens, 46.3 ms at 185,000: 0.09 ms each 1,000 tokens, 2.0 times the floor"
        in told
    )
    assert "GPUs busy 95%, 400 W" in told
    assert "AL 3.20, on this host before 3.10 to 3.30" in told
    assert seen(Evidence()) == ()


def test_no_evidence_gives_no_finding() -> None:
    assert diagnose(Evidence()) == ()


@pytest.mark.parametrize("id_", IDS)
def test_evidence_that_shows_it_is_named_first(id_: str) -> None:
    assert ids(CASES[id_])[0] == id_


@pytest.mark.parametrize("id_", IDS)
def test_a_finding_says_everything_a_person_needs(id_: str) -> None:
    finding = find(CASES[id_], id_)
    assert finding.title and finding.cause and finding.remedy and finding.evidence
    assert "HOST" not in finding.remedy + finding.next_experiment
    for text in (finding.title, finding.cause, finding.remedy):
        assert not text.endswith(".")


def test_a_crash_is_tied_to_the_settings_that_differ() -> None:
    """E17: illegal access at memory fraction 0.7 and 0.9, not at 0.8."""
    failure = classify(["torch.AcceleratorError: CUDA error: an illegal memory access was encountered"])
    changes = (Change("memory_fraction", 0.8, 0.9),)
    evidence = but(journal=Journal(failure=failure), changes=changes, unit=Unit("failed"))
    finding = diagnose(evidence)[0]
    assert finding.id == "illegal-memory-access"
    assert "differs from the last good release: memory_fraction 0.8 → 0.9" in finding.evidence
    assert finding.next_experiment == "kdops rollback ct200"


def test_an_echo_of_a_failure_is_only_possible() -> None:
    failure = classify(["ncclUnhandledCudaError: Call to CUDA function failed."])
    down = but(journal=Journal(failure=failure), unit=Unit("failed"))
    assert diagnose(down)[0].confidence is Confidence.POSSIBLE


def test_a_service_that_runs_has_got_over_its_failure() -> None:
    failure = classify(["torch.AcceleratorError: CUDA error: an illegal memory access was encountered"])
    journal = Journal(failure=failure)
    assert diagnose(but(journal=journal, unit=Unit("active", 0))) == ()
    assert ids(but(journal=journal, unit=Unit("inactive", 0))) == ["not-running"]
    again = diagnose(but(journal=journal, unit=Unit("active", 2)))[0]
    assert (again.id, again.severity) == ("illegal-memory-access", "slow")
    assert "2 restarts" in again.evidence[1]


def test_a_deploy_that_went_back_is_named_by_its_class() -> None:
    last = LastDeploy("linear-2", "it did not start", "exit status 70", "read", ("CUDA out of memory",))
    evidence = but(failed_deploy=last, changes=(Change("memory_fraction", 0.8, 0.95),))
    (finding,) = diagnose(evidence)
    assert finding.id == "oom"
    assert finding.title.startswith("the last deploy (linear-2) failed: ")
    assert "differs from the last good release: memory_fraction 0.8 → 0.95" in finding.evidence


def test_a_weak_drafter_is_not_a_bug() -> None:
    weak = but(stretches=(point(60, histogram=(700, 250, 50)),), past=())
    assert "flat-commit" not in ids(weak)


def test_steps_that_fall_back_explain_a_flat_commit() -> None:
    evidence = but(
        stretches=(point(60, histogram=(300, 0, 0)),),
        past=(),
        journal=None,
        counters=Counters(300, 0, (), {"penalties": 300}),
    )
    assert ids(evidence) == ["fallback-active"]


def test_a_short_journal_is_no_proof_of_a_flat_commit() -> None:
    assert diagnose(but(journal=Journal(windows=2, flat_windows=2))) == ()


def test_a_drafter_within_its_window_is_not_beyond_its_training() -> None:
    """E8: the remedy is the draft window, so with one set something else is wrong."""
    covered = but(
        stretches=(point(512), point(64_000, histogram=FALLEN)),
        drafter=Drafter(8, 8192, None),
        settings=Settings(requested(draft_window=2048)),
    )
    assert "draft-beyond-training" not in ids(covered)
    finding = find(CASES["draft-beyond-training"], "draft-beyond-training")
    assert finding.confidence is Confidence.PROBABLE
    assert "engine_draft_window" in finding.remedy


def test_a_sharp_cut_is_not_the_training_length() -> None:
    """E7: zero from draft position 4 on, beyond 2k of context."""
    finding = find(CASES["sliding-window-not-applied"], "sliding-window-not-applied")
    assert "from position 4 on" in finding.evidence[0]
    assert finding.confidence is Confidence.POSSIBLE
    known = dataclasses.replace(CASES["sliding-window-not-applied"], drafter=Drafter(8, 262_144, 2048))
    assert find(known, "sliding-window-not-applied").confidence is Confidence.PROBABLE


def test_the_break_even_length_is_named() -> None:
    """E4: faster without speculation at long contexts."""
    finding = find(CASES["speculation-loses"], "speculation-loses")
    length = int(re.search(r"above ([\d,]+) tokens", finding.title)[1].replace(",", ""))  # type: ignore[index]
    assert 60_000 < length < 100_000


def test_a_steep_slope_without_a_floor_is_compared_with_plain_decoding() -> None:
    """E1: 128k decode 31 to 10 tok/s once speculation is on."""
    points = [point(c, 0.03 + 2e-6 * c) for c in (1024, 32_768, 131_072)]
    evidence = but(gpu=None, floor=None, stretches=(*points, plain(1024, 0.03), plain(131_072, 0.0325)))
    assert "verify-not-split" in ids(evidence)
    assert "verify-not-split" not in ids(but(gpu=None, floor=None, stretches=tuple(points)))


def test_prompt_sets_that_differ_are_what_a_measurement_shows() -> None:
    sets = (point(60, text="reasoning", histogram=(2, 0, 0, 0, 0, 0, 0, 99)), point(60, text="prose"))
    assert diagnose(but(stretches=sets)) == ()


# What `kdops ab linear linear` counted on a lab host (SGLang on its CPU, four starts): a sound drafter.
COUNTED = {
    "repetitive": (144, 52, 76, 16, 20, 36, 12, 144),
    "prose": (96, 76, 64, 28, 8, 8, 8, 124),
    "code": (308, 220, 108, 32, 40, 24, 8, 56),
    "reasoning": (96, 60, 52, 32, 12, 0, 12, 52),
    "long-context": (0, 44, 0, 4, 20, 0, 0, 40),
}


def test_a_real_measurement_of_a_sound_drafter_gets_no_finding() -> None:
    counted = tuple(point(0, text=text, histogram=cells) for text, cells in COUNTED.items())
    assert diagnose(but(stretches=counted, past=())) == ()


# The tiny pair's own figures (models/tiny-pair/report.json): shares accepted at each position, given the ones
# before; with slot 0 fed the mask embedding its AL falls to these values.
SHARES = {
    "code": (0.771, 0.780, 0.771, 0.746, 0.846, 0.879, 0.892),
    "prose": (0.673, 0.669, 0.659, 0.584, 0.701, 0.845, 0.817),
    "reasoning": (0.967, 0.989, 0.987, 0.989, 0.973, 0.955, 0.941),
    "repetitive": (0.917, 0.838, 0.768, 0.808, 0.871, 0.924, 0.906),
}
MASKED = {"code": 2.820, "prose": 2.043, "reasoning": 6.943, "repetitive": 3.690}


def histogram_of(shares: tuple[float, ...], steps: int = 1000) -> tuple[int, ...]:
    reached = [float(steps)]
    for share in shares:
        reached.append(reached[-1] * share)
    return tuple(round(a - b) for a, b in zip(reached, [*reached[1:], 0.0], strict=True))


def test_a_sound_drafter_guesses_its_first_position_as_well_as_the_later_ones() -> None:
    sound = tuple(point(60, text=text, histogram=histogram_of(s)) for text, s in SHARES.items())
    assert diagnose(but(stretches=sound)) == ()


def test_a_masked_first_slot_shows_at_the_first_position() -> None:
    masked = []
    for text, shares in SHARES.items():
        rest = (mean(histogram_of(shares)) - 1) / shares[0]
        first = (MASKED[text] - 1) / rest
        masked.append(point(60, text=text, histogram=histogram_of((first, *shares[1:]))))
    assert ids(but(stretches=tuple(masked))) == ["draft-input"]


def test_counters_alone_tell_a_wrong_drafter_too() -> None:
    at = (30, 5, 1)
    assert ids(but(stretches=(), past=(), counters=Counters(5000, 0, at))) == ["drafter-mismatch"]
    assert ids(but(stretches=(), past=(), counters=Counters(5000, 0, (1500, 1100, 800, 600)))) == [
        "draft-input"
    ]


def test_a_power_cap_is_part_of_the_load() -> None:
    capped = but(gpus=(GpuUse("run", 0.95, 1500, 2430, 600, 70, ("power cap",)),))
    assert find(capped, "clocks-throttled").severity == "note"


def test_a_quota_that_never_bites_is_no_finding() -> None:
    assert diagnose(but(unit=Unit("active", 0, 8.0, 0.0))) == ()


def test_rounding_is_no_drift() -> None:
    assert diagnose(but(settings=Settings(requested(), {"mem_fraction_static": 0.9000000001}))) == ()


def test_the_cpu_has_no_graphs_to_miss() -> None:
    on_cpu = but(settings=Settings(requested(device="cpu")), journal=Journal(windows=9, eager_windows=9))
    assert diagnose(on_cpu) == ()
    asked = but(
        settings=Settings(requested(device="cpu", cuda_graph_decode="full")),
        journal=Journal(windows=9, eager_windows=9),
    )
    assert ids(asked) == ["eager-mode"]


def test_a_better_acceptance_that_is_proven_is_good_news() -> None:
    """E30."""
    proven = dataclasses.replace(CASES["unproven-gain"], measurement=measured(arm("ddtree", 5, 0.03)))
    assert diagnose(proven) == ()


def test_slower_starts_and_steps_are_alarms_too() -> None:
    slow = but(
        past=(Past("step time", (0.030, 0.031, 0.030), 0.05), Past("start-up time", (440, 460, 450), 900))
    )
    assert ids(slow) == ["outside-history", "outside-history"]


def test_two_measurements_are_no_range() -> None:
    assert diagnose(but(past=(Past("AL", (3.1, 3.3), 1.0),))) == ()
