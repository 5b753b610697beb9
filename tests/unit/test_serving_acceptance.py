"""Acceptance length by definition, and the invariants that guard it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.serving import acceptance
from kdops.serving.client import generation

pytestmark = pytest.mark.unit


def meta(histogram, **changes):
    steps = sum(histogram)
    accepted = sum(i * n for i, n in enumerate(histogram))
    return {
        "spec_verify_ct": steps,
        "spec_correct_drafts_histogram": histogram,
        "spec_num_correct_drafts": accepted,
        "completion_tokens": steps + accepted + 1,
        **changes,
    }


@given(st.lists(st.integers(0, 500), min_size=1, max_size=16).filter(any))
def test_it_is_the_mean_of_tokens_committed_a_step(histogram):
    found = acceptance(meta(histogram), meta(histogram)["completion_tokens"])
    commits = [i + 1 for i, n in enumerate(histogram) for _ in range(n)]
    assert found.length == pytest.approx(sum(commits) / len(commits))
    assert found.committed == sum(commits)
    assert found.problems == ()


def test_it_is_not_sglang_s_value():
    # 4 steps, 8 accepted: 12 tokens by the steps and one by prefill; SGLang says 13 / 4
    told = meta([0, 0, 4], spec_accept_length=3.25)
    answer = generation({"text": "x", "meta_info": told}, 1.0)
    assert answer.acceptance.length == 3.0
    assert answer.sglang_accept_length == 3.25


@pytest.mark.parametrize(
    ("changes", "completion", "problem"),
    [
        ({"spec_verify_ct": 5}, 13, "the histogram has 4 steps, the counter 5"),
        ({"spec_num_correct_drafts": 9}, 13, "the histogram has 8 accepted drafts, the counter 9"),
        ({"spec_correct_drafts_histogram": None}, 13, "no usable histogram"),
        ({"spec_correct_drafts_histogram": [0, None, 4]}, 13, "no usable histogram"),
        ({}, 14, "12 tokens committed, but 14 completion tokens"),
        ({}, 10, "12 tokens committed, but 10 completion tokens"),
    ],
)
def test_a_broken_invariant_is_told(changes, completion, problem):
    (told,) = acceptance(meta([0, 0, 4], **changes), completion).problems
    assert told.startswith(problem)


def test_plain_steps_are_no_verify_steps_and_account_for_their_tokens():
    found = acceptance(meta([0, 0, 4], spec_plain_steps=5), 18)
    assert (found.length, found.plain, found.problems) == (3.0, 5, ())
    (told,) = acceptance(meta([0, 0, 4], spec_plain_steps=5), 19).problems
    assert told == "17 tokens committed, but 19 completion tokens"


@pytest.mark.parametrize("completion", [11, 12, 13])
def test_a_stop_may_cut_the_last_commit(completion):
    assert acceptance(meta([0, 0, 4]), completion).problems == ()


@pytest.mark.parametrize("steps", [None, 0, -1, float("nan"), "3", True, 1.5, [2]])
def test_without_steps_there_is_none(steps):
    assert acceptance(meta([0, 0, 4], spec_verify_ct=steps), 13) is None


def test_neither_histogram_nor_counter():
    assert acceptance({"spec_verify_ct": 3}, 5) is None


ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["text", "output_ids", "meta_info"]), ANY),
    st.dictionaries(st.sampled_from([*meta([1]), "finish_reason", "spec_accept_length"]), ANY),
)
def test_no_answer_breaks_it(answer, told):
    found = generation({"meta_info": told, **answer}, 0.0)
    assert found.tokens_per_second is None
    if found.acceptance:
        assert found.acceptance.length >= 1
