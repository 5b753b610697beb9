"""What comes after a text's natural end repeats and is not counted."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.bench.leg import analyse
from kdops.bench.natural import end_tokens, useful
from kdops.serving.acceptance import Acceptance

pytestmark = pytest.mark.unit
END = 7


def sample(counts: list[int], end: int | None) -> dict[str, Any]:
    """Arrivals every 0.1 s until 0.5 s, then, past the end, every 0.01 s. end: position of the end token."""
    ids = [1] * counts[-1]
    if end is not None:
        ids[end] = END
    steps = len(counts) - 1
    histogram = [0] * 8
    for before, after in pairwise(counts):
        histogram[after - before - 1] += 1
    return {
        "key": "prose/0",
        "stage": "prose",
        "asked": counts[-1],
        "ttft": 0.2,
        "first_tokens": counts[0],
        "counts": counts,
        "gaps": [0.1 if i < 5 else 0.01 for i in range(steps)],
        "decode_seconds": sum(0.1 if i < 5 else 0.01 for i in range(steps)),
        "output_ids": ids,
        "meta": {
            "prompt_tokens": 5,
            "completion_tokens": counts[-1],
            "spec_verify_ct": steps,
            "spec_num_correct_drafts": counts[-1] - 1 - steps,
            "spec_correct_drafts_histogram": histogram,
        },
    }


SLOW = [1, 3, 5, 7, 9, 11]  # two tokens a step
FAST = [19, 27, 35, 43]  # then eight: the text repeats


def of(raw: dict[str, Any]) -> Acceptance:
    meta = raw["meta"]
    return Acceptance(meta["spec_verify_ct"], meta["spec_num_correct_drafts"], ())


def test_speed_and_acceptance_stop_at_the_natural_end() -> None:
    raw = sample([*SLOW, *FAST], end=11)
    kept = useful(raw, of(raw), (END,))
    assert (kept.tokens, kept.seconds) == (10, pytest.approx(0.5))
    assert kept.acceptance == Acceptance(5, 5, (0, 5)) and kept.acceptance.length == 2
    assert kept.past == 32 and kept.exact and len(kept.gaps) == 5


def test_without_an_end_the_request_counts_whole() -> None:
    raw = sample([*SLOW, *FAST], end=None)
    kept = useful(raw, of(raw), (END,))
    assert (kept.tokens, kept.past, kept.acceptance) == (42, 0, of(raw))
    assert useful({**raw, "counts": None}, of(raw), (1,)).past == 0, "samples of older runs have no counts"


def test_merged_arrivals_are_said_to_be_approximate() -> None:
    raw = sample([*SLOW, *FAST], end=11)
    raw["meta"]["spec_verify_ct"] += 1
    assert not useful(raw, of(raw), (END,)).exact


def leg(raw: dict[str, Any]) -> Any:
    counter = "sglang:num_requests_total {}\n"
    stage = {"name": "prose", "requests": 1, "before": counter.format(0.0), "after": counter.format(1.0)}
    seen = {
        "client": {"wall_seconds": 9.0, "cpu_seconds": 0.1},
        "stages": [stage],
        "end_tokens": [END],
    }
    return analyse("linear", 0, speculates=True, samples=[raw], evidence=seen)


def test_a_share_above_5_percent_is_a_finding_and_not_fatal() -> None:
    made = leg(sample([*SLOW, *FAST], end=11))
    assert made.stages["prose"].rate.acceptance_length == 2
    (finding,) = made.findings
    assert not finding.fatal and "76%" in finding.evidence and finding.where == "linear, leg 1"
    assert leg(sample([*SLOW, *FAST], end=42)).findings == ()


@pytest.mark.parametrize(("stage", "length"), [("context-mine", 2), ("context", None)])
def test_a_set_that_only_begins_like_the_context_sweep_ends_at_its_end(
    stage: str, length: float | None
) -> None:
    made = leg({**sample([*SLOW, *FAST], end=11), "stage": stage})
    rates = [sums.rate.acceptance_length for name, sums in made.stages.items() if name == stage]
    assert rates == ([] if length is None else [length])


def test_a_text_that_ends_at_once_cannot_be_timed() -> None:
    made = leg(sample([*SLOW, *FAST], end=0))
    assert made.stages == {}
    assert any("prose: every text ended by itself at once" in one.evidence for one in made.findings)


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (b'{"eos_token_id": [0, 2]}', (0, 2)),
        (b'{"eos_token_id": 5}', (5,)),
        (b'{"eos_token_id": null}', None),
        (b'{"eos_token_id": ["x", true]}', None),
        (b"[1]", None),
        (b"\xff{", None),
        (b"", None),
    ],
)
def test_end_tokens_of_a_model(config: bytes, found: tuple[int, ...] | None) -> None:
    assert end_tokens(config) == found


@given(st.lists(st.integers(1, 8), min_size=1, max_size=40), st.integers(0, 400))
def test_what_counts_ends_at_the_end_and_keeps_its_identities(commits: list[int], end: int) -> None:
    counts = list(accumulate([1, *commits]))
    end = min(end, counts[-1] - 1)
    raw = sample(counts, end)
    kept = useful(raw, of(raw), (END,))
    assert kept.tokens == max((n for n in counts if n <= end), default=1) - 1
    assert kept.past == counts[-1] - end
    assert len(kept.gaps) == len([n for n in counts[1:] if n <= end])
    assert kept.seconds == pytest.approx(sum(kept.gaps))
    if kept.acceptance is None:
        assert kept.tokens == 0
    else:
        assert kept.acceptance.committed == kept.tokens
        assert sum(kept.acceptance.histogram) == kept.acceptance.steps == len(kept.gaps)


def test_plain_steps_of_an_auto_arm_count_as_steps_of_one_token() -> None:
    raw = sample([1, 2, 3, 5, 7], end=None)
    told = {"spec_verify_ct": 2, "spec_correct_drafts_histogram": [0, 2], "spec_plain_steps": 2}
    raw["meta"] |= told
    leg = analyse("ddtree", 0, speculates=True, samples=[raw], evidence={})
    assert leg.stages["prose"].rate.acceptance_length == 6 / 4
    raw["meta"] = {"prompt_tokens": 5, "completion_tokens": 7, "spec_plain_steps": 6}
    leg = analyse("ddtree", 0, speculates=True, samples=[raw], evidence={})
    assert leg.stages["prose"].rate.acceptance_length == 1
    assert not [found for found in leg.findings if "cannot be used" in found.title]


@pytest.mark.parametrize(
    ("rejected", "kept", "exact"),
    [
        (0, Acceptance(2, 4, (0, 0, 2), plain=4), True),  # every step of one token is a plain one
        (2, Acceptance(3, 4, (1, 0, 2), plain=3), False),  # of eight steps of one token six are plain
    ],
)
def test_plain_steps_before_the_natural_end_are_no_verify_steps(
    rejected: int, kept: Acceptance, exact: bool
) -> None:
    commits = [1, 1, 3, 1, 3, 1, 8, 1, 1, 1, 1]
    raw = sample(list(accumulate([1, *commits])), end=11)
    histogram = (rejected, 0, 2, 0, 0, 0, 0, 1)
    whole = Acceptance(3 + rejected, 11, histogram, plain=8 - rejected)
    found = useful(raw, whole, (END,))
    assert (found.acceptance, found.exact) == (kept, exact)


def test_requests_of_plain_steps_alone_count_in_their_stage() -> None:
    plain, drafting = sample([1, 2, 3], end=None), sample([1, 3, 5], end=None)
    plain["meta"] = {"prompt_tokens": 5, "completion_tokens": 3, "spec_plain_steps": 2}
    leg = analyse("ddtree", 0, speculates=True, samples=[plain, drafting], evidence={})
    assert leg.stages["prose"].rate.acceptance_length == 6 / 4
    cut = sample([1, 2, 3, 11], end=3)
    kept = useful(cut, Acceptance(1, 7, (0,) * 7 + (1,), plain=2), (END,))
    assert kept.acceptance == Acceptance(0, 0, (0,), plain=2) and kept.acceptance.length == 1
