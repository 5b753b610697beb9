"""The tree mask's places and what the captured graphs compute, run here without a graph."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kdtree_engine import batched
from kdtree_engine.options import Options
from kdtree_engine.sglang.captured import CapturedStep
from kdtree_engine.sglang.outcome import settle
from kdtree_engine.sglang.stepcounts import StepCounts
from kdtree_engine.sglang.treemask import capture_with_mask, full_mask, write_captured, write_tree

OPTIONS = Options(block_size=4, budget=9, topk_cap=3, keep_spine=False)
NINE_ROWS = SimpleNamespace(captured_req_width=9)


def candidates(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.log_softmax(hidden, -1).topk(OPTIONS.topk_cap, -1)
    return found.values, found.indices


def test_full_mask_is_prefix_then_tree() -> None:
    ancestors = torch.tensor([[[1, 0], [1, 1]], [[1, 0], [0, 1]]], dtype=torch.bool)
    mask = full_mask(ancestors, torch.tensor([1, 3]), 4)
    assert mask.int().tolist() == [1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 6))
@settings(deadline=None)
def test_writing_the_tree_alone_gives_the_full_masks_tree(prefixes: list[int], size: int) -> None:
    torch.manual_seed(len(prefixes) * 7 + size)
    prefix_lens = torch.tensor(prefixes)
    ancestors = torch.rand(len(prefixes), size, size) < 0.5
    expected = full_mask(ancestors, prefix_lens, sum(prefixes))
    widths = size * (prefix_lens + size)
    start = widths.cumsum(0) - widths
    mask = torch.ones(int(widths.sum()), dtype=torch.uint8)
    write_tree(mask, start, prefix_lens, ancestors)
    assert mask.bool().tolist() == expected.tolist()


def test_a_graph_computes_what_a_step_without_one_does() -> None:
    torch.manual_seed(3)
    counts = StepCounts(OPTIONS, "cpu", leads=True)
    step = CapturedStep(OPTIONS, counts, 5, "cpu")
    hidden, ids = torch.randn(3 * 4, 11), torch.arange(12)
    step.proposer(candidates)(hidden, ids)
    logp, tokens = candidates(hidden.view(3, 4, 11)[:, 1:])
    tree = batched.build(logp, tokens, ids.view(3, 4)[:, 0], 9)
    assert step.tree(3).tokens.tolist() == tree.tokens.tolist()
    assert step.tree(3).ancestors.tolist() == tree.ancestors.tolist()

    logits, features, places = torch.randn(3 * 9, 11), torch.randn(3 * 9, 6), torch.arange(100, 127)
    lens = torch.tensor([4, 5, 6])
    output = SimpleNamespace(next_token_logits=logits, hidden_states=features)
    step.target_tail(
        NINE_ROWS, output, SimpleNamespace(batch_size=3, seq_lens=lens, out_cache_loc=places), 27
    )
    choice, walked, records, outcome = step.result(2, 9)
    expected = batched.walk(tree, logits.argmax(-1).view(3, 9), OPTIONS.depths)
    assert choice.tolist() == logits.argmax(-1).view(3, 9)[:2].tolist()
    assert walked.committed.tolist() == expected.committed[:2].tolist()
    assert walked.lengths.tolist() == expected.lengths[:2].tolist()
    counts.add(records)
    assert counts.totals().steps == 2
    assert counts.totals().violations() == ()
    eager = settle(expected, lens, places, features, 9)
    assert outcome.tokens.tolist() == eager.tokens[:2].tolist()
    assert outcome.numbers.tolist() == eager.numbers[:, :2].tolist()
    assert outcome.source.tolist() == eager.source[:2].tolist()
    assert outcome.target.tolist() == eager.target[:2].tolist()
    assert outcome.hidden.tolist() == eager.hidden[: 2 * OPTIONS.block_size].tolist()


def test_only_nodes_off_their_place_move() -> None:
    path = torch.tensor([[0, 1, 4, -1], [0, 2, 3, 5], [0, 1, 2, 3]])
    lengths = (path >= 0).sum(1)
    walked = batched.BatchedWalk(path, lengths, lengths - 1, path.clamp(min=0), lengths)
    outcome = settle(walked, torch.tensor([9, 9, 9]), torch.arange(100, 118), torch.randn(18, 2), 6)
    assert outcome.source.tolist() == [[0, 0, 104, 0], [0, 108, 109, 111], [0, 0, 0, 0]]
    assert outcome.target.tolist() == [[0, 0, 102, 0], [0, 107, 108, 109], [0, 0, 0, 0]]


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_a_graph_of_fewer_rows_walks_the_beginning_of_the_tree(rows: int) -> None:
    torch.manual_seed(rows)
    step = CapturedStep(OPTIONS, StepCounts(OPTIONS, "cpu", leads=True), 5, "cpu")
    hidden, ids = torch.randn(3 * 4, 11), torch.arange(12)
    step.proposer(candidates)(hidden, ids)
    logp, tokens = candidates(hidden.view(3, 4, 11)[:, 1:])
    tree = batched.build(logp, tokens, ids.view(3, 4)[:, 0], rows)
    logits, features = torch.randn(3 * rows, 11), torch.randn(3 * rows, 6)
    places, lens = torch.arange(100, 100 + 3 * rows), torch.tensor([4, 5, 6])
    output = SimpleNamespace(next_token_logits=logits, hidden_states=features)
    # SGLang's decode batch counts the row that it computes, a verify batch the prefix alone.
    seen = SimpleNamespace(batch_size=3, seq_lens=lens + (rows == 1), out_cache_loc=places)
    step.target_tail(SimpleNamespace(captured_req_width=rows), output, seen, 3 * rows)
    choice, walked, _, outcome = step.result(3, rows)
    expected = batched.walk(tree, logits.argmax(-1).view(3, rows), OPTIONS.depths)
    assert choice.tolist() == logits.argmax(-1).view(3, rows).tolist()
    assert (walked.path.tolist(), walked.bonus.tolist()) == (expected.path.tolist(), expected.bonus.tolist())
    eager = settle(expected, lens, places, features, rows)
    for name in ("tokens", "numbers", "source", "target", "hidden"):
        assert getattr(outcome, name).tolist() == getattr(eager, name).tolist()
    assert outcome.numbers[2].tolist() == (lens + expected.lengths).tolist()
    assert outcome.tokens.shape == (3, rows)


def test_rows_that_no_drafter_filled_still_walk() -> None:
    """A graph is captured, and its padding replayed, on whatever lies in the static tensors."""
    step = CapturedStep(OPTIONS, StepCounts(OPTIONS, "cpu", leads=True), 2, "cpu")
    output = SimpleNamespace(next_token_logits=torch.zeros(2 * 9, 11), hidden_states=torch.zeros(2 * 9, 6))
    slots = SimpleNamespace(batch_size=2, seq_lens=torch.ones(2), out_cache_loc=torch.zeros(18, dtype=int))
    step.target_tail(NINE_ROWS, output, slots, 18)
    assert (step.result(2, 9)[1].lengths <= OPTIONS.block_size).all()


def test_a_step_without_a_captured_target_has_no_result() -> None:
    step = CapturedStep(OPTIONS, StepCounts(OPTIONS, "cpu", leads=True), 2, "cpu")
    with pytest.raises(RuntimeError, match="no graph"):
        step.result(1, 9)


def test_the_target_of_ddtree_is_captured_with_a_mask_and_nothing_else_is() -> None:
    def captured(algorithm: object, *, draft: bool) -> object:
        model = SimpleNamespace(spec_algorithm=algorithm, is_draft_worker=draft, device="cpu")
        info = SimpleNamespace(custom_mask=None)
        return capture_with_mask(info, SimpleNamespace(model_runner=model), 9).custom_mask

    ddtree = SimpleNamespace(takes_tree_mask=True)
    assert captured(ddtree, draft=False) is not None
    assert captured(ddtree, draft=True) is None
    assert captured(SimpleNamespace(), draft=False) is None


@pytest.mark.parametrize(("mask", "mode"), [(None, "FULL_MASK"), (torch.ones(9), "QLEN_ONLY")])
def test_a_graph_without_our_mask_is_refused_at_capture(mask: torch.Tensor | None, mode: str) -> None:
    backend = SimpleNamespace(
        forward_metadata=SimpleNamespace(custom_mask=mask),
        verify_mask=SimpleNamespace(mode=SimpleNamespace(name=mode)),
    )
    with pytest.raises(RuntimeError, match="without a tree mask"):
        write_captured(SimpleNamespace(attn_backend=backend), None, torch.empty(0))
