"""What DDTREE refuses before weights load, each in one sentence that names the setting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdtree_engine.options import RefusedError, Request, Surroundings, check_device, settle
from kdtree_engine.tree import max_nodes

pytestmark = pytest.mark.unit

AROUND = Surroundings(
    drafter="drafter",
    drafter_block_size=8,
    asked_block_size=None,
    draft_window=None,
    pp_size=1,
    vocabulary=4096,
)


def test_defaults_are_two_blocks_and_four_candidates() -> None:
    options = settle(Request(), AROUND)
    assert (options.budget, options.topk_cap, options.block_size, options.depths) == (16, 4, 8, 7)


def test_the_chain_is_a_tree_of_one_block() -> None:
    assert settle(Request(topk_cap=1), AROUND).budget == 8


def test_auto_chooses_among_plain_decoding_and_up_to_four_blocks() -> None:
    options = settle(Request(budget="auto"), AROUND)
    assert (options.auto, options.budget) == ((1, 8, 16, 32), 32)
    assert settle(Request(budget="auto", topk_cap=1), AROUND).auto == (1, 8)
    assert settle(Request(), AROUND).auto == ()


@pytest.mark.parametrize(
    ("request_", "around", "words"),
    [
        (Request(budget=7), AROUND, "ddtree-budget is 7 .root included., less than the block size 8"),
        (Request(budget=257), AROUND, "allow 256 at most"),
        (Request(budget=9, topk_cap=1), AROUND, "allow 8 at most"),
        (Request(budget="fast"), AROUND, "'fast'; it can be a number or auto"),
        (Request(topk_cap=0), AROUND, "ddtree-topk-cap is 0"),
        (Request(topk_cap=5000), AROUND, "vocabulary of 4096"),
        (Request(), replace(AROUND, pp_size=2), "pipeline parallel size 1, not 2"),
        (Request(), replace(AROUND, asked_block_size=16), "the drafter has 8"),
        (Request(), replace(AROUND, draft_window=4), "draft-window-size is 4, less than the block size 8"),
        (Request(), replace(AROUND, drafter=None), "speculative-draft-model-path"),
        (Request(), replace(AROUND, drafter_block_size=None), "no block_size"),
        (Request(), replace(AROUND, drafter_block_size=1), "at least 2"),
    ],
)
def test_impossible_settings_are_refused_in_one_sentence(
    request_: Request, around: Surroundings, words: str
) -> None:
    with pytest.raises(RefusedError, match=words) as refused:
        settle(request_, around)
    assert "\n" not in str(refused.value)


@given(st.integers(-5, 400), st.integers(-2, 12), st.integers(2, 16))
def test_whatever_is_settled_can_be_built(budget: int, width: int, block: int) -> None:
    try:
        options = settle(Request(budget, width), replace(AROUND, drafter_block_size=block))
    except RefusedError:
        assert budget < block or width < 1 or budget > min(256, max_nodes(block - 1, width))
    else:
        assert block <= options.budget <= max_nodes(options.depths, options.topk_cap)


def test_a_device_set_up_that_changes_tokens_is_refused() -> None:
    usual: dict[str, Any] = {
        "attention_groups": 1,
        "deterministic": False,
        "graphs": "full",
    }
    cpu = {**usual, "device": "cpu", "attention_backends": {"torch_native"}}
    cuda = {**usual, "device": "cuda", "attention_backends": {"triton"}}
    check_device(**cpu)
    check_device(**cpu | {"graphs": "breakable"})
    check_device(**cuda)
    check_device(**cuda | {"graphs": "disabled"})
    for changes, words in (
        ({"attention_backends": {"triton", "flashinfer"}}, "flashinfer takes no tree mask on cuda"),
        ({"deterministic": True}, "exclude each other"),
        ({"attention_groups": 4}, "without attention data parallelism, not with 4 groups"),
        ({"graphs": "breakable"}, "set cuda-graph-backend-decode to full$"),
    ):
        with pytest.raises(RefusedError, match=words) as refused:
            check_device(**cuda | changes)
        assert "\n" not in str(refused.value)
    with pytest.raises(RefusedError, match="triton takes no tree mask on cpu"):
        check_device(**cpu | {"attention_backends": {"triton"}})
