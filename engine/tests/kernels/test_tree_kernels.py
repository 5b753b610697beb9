"""The tree and walk kernels against their definitions, under Triton's interpreter where there is no GPU."""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kdtree_engine.accept import walk
from kdtree_engine.kernels import tree as kernels
from kdtree_engine.tree import best_first, max_nodes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Sums of these are exact in float32, so ties are ties.
VALUES = st.sampled_from([0.0, -0.125, -0.25, -0.5, -1.0, -2.0, -4.0])


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[list[float]]], int]:
    """[b, D, K] sorted log-probabilities with many ties, and a budget."""
    size, depth, width = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    row = st.lists(VALUES, min_size=width, max_size=width).map(lambda found: sorted(found, reverse=True))
    request = st.lists(row, min_size=depth, max_size=depth)
    logp = draw(st.lists(request, min_size=size, max_size=size))
    return logp, draw(st.integers(1, min(40, max_nodes(depth, width))))


@given(batches(), st.booleans(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=60)
def test_kernels_are_the_reference(
    case: tuple[list[list[list[float]]], int], keep_spine: bool, random: Random
) -> None:
    logp, budget = case
    values = torch.tensor(logp, device=DEVICE)
    size, depths, width = values.shape
    tokens = 100 * torch.arange(1, depths + 1)[:, None] + torch.arange(width)
    block = torch.arange(size, device=DEVICE)[:, None].repeat(1, 3) * torch.tensor([1, -1, -1], device=DEVICE)
    root = block[:, 0]  # a column of the drafter's block, as the engine gives it
    candidates = tokens.expand(size, -1, -1).to(DEVICE)
    tree = kernels.build(values, candidates, root, budget, keep_spine=keep_spine)
    choice = [[100 * (depth + 1) + random.randrange(3) for depth in row] for row in tree.depth.tolist()]
    walked = kernels.walk(tree, torch.tensor(choice, device=DEVICE), depths)
    for index, request in enumerate(logp):
        expected = best_first(request, budget, keep_spine=keep_spine)
        nodes = expected.nodes
        assert tree.parent[index].tolist() == [node.parent for node in nodes]
        assert tree.depth[index].tolist() == [node.depth for node in nodes]
        assert tree.rank[index].tolist() == [node.rank for node in nodes]
        assert tree.tokens[index].tolist() == [index, *(100 * node.depth + node.rank for node in nodes[1:])]
        assert tree.ancestors[index].tolist() == [list(row) for row in expected.ancestor_mask()]
        taken = walk(expected, tree.tokens[index].tolist(), choice[index])
        length = int(walked.lengths[index])
        assert walked.path[index, :length].tolist() == list(taken.path)
        assert set(walked.path[index, length:].tolist()) <= {-1}
        assert walked.committed[index, :length].tolist() == list(taken.committed)
        assert int(walked.bonus[index]) == taken.committed[-1]
        assert int(walked.depth[index]) == taken.accepted_drafts


def test_bad_drafter_output_still_gives_a_closed_tree() -> None:
    logp = torch.tensor([[[float("nan"), -1.0], [float("inf"), float("-inf")]]], device=DEVICE)
    candidates = torch.arange(4, device=DEVICE).view(1, 2, 2)
    tree = kernels.build(logp, candidates, torch.zeros(1, dtype=torch.long, device=DEVICE), 7)
    assert (tree.parent[0, 1:].cpu() < torch.arange(1, 7)).all()
    assert len({*zip(tree.parent[0].tolist(), tree.rank[0].tolist(), strict=True)}) == 7


def test_an_impossible_budget_is_refused() -> None:
    logp = torch.tensor([[[-1.0, -2.0]]], device=DEVICE)
    with pytest.raises(ValueError, match="1 to 3 nodes"):
        kernels.build(logp, torch.zeros(1, 1, 2, dtype=torch.long), torch.zeros(1, dtype=torch.long), 4)
