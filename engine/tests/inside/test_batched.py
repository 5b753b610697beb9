"""The batched tree and walk against their plain definitions, and sampled output against the target's
distribution.
"""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kdtree_engine import batched
from kdtree_engine.accept import walk
from kdtree_engine.metrics import StepRecord
from kdtree_engine.options import Options
from kdtree_engine.policy import commits_within
from kdtree_engine.sglang.stepcounts import StepCounts
from kdtree_engine.tree import best_first, max_nodes

VALUES = st.sampled_from([0.0, -0.125, -0.25, -0.5, -1.0, -2.0, -4.0])


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[list[list[float]]], int]:
    """[b, D, K] sorted log-probabilities with many ties, and a budget."""
    size, depth, width = draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    row = st.lists(VALUES, min_size=width, max_size=width).map(lambda found: sorted(found, reverse=True))
    request = st.lists(row, min_size=depth, max_size=depth)
    logp = draw(st.lists(request, min_size=size, max_size=size))
    return logp, draw(st.integers(1, min(40, max_nodes(depth, width))))


def build(logp: list[list[list[float]]], budget: int, *, keep_spine: bool) -> batched.BatchedTree:
    """Tokens are 100 * position + rank, so that they name their node's place."""
    values = torch.tensor(logp, dtype=torch.float64)
    size, depth, width = values.shape
    tokens = 100 * torch.arange(1, depth + 1)[:, None] + torch.arange(width)
    root = torch.arange(size)
    return batched.build(
        values, tokens.expand(size, -1, -1).contiguous(), root, budget, keep_spine=keep_spine
    )


@given(batches(), st.booleans())
@settings(deadline=None, max_examples=200)
def test_batched_tree_is_the_reference_tree(
    case: tuple[list[list[list[float]]], int], keep_spine: bool
) -> None:
    logp, budget = case
    tree = build(logp, budget, keep_spine=keep_spine)
    first, following = tree.next_token(), tree.next_sibling()
    for index, request in enumerate(logp):
        expected = best_first(request, budget, keep_spine=keep_spine)
        nodes = expected.nodes
        assert tree.parent[index].tolist() == [node.parent for node in nodes]
        assert tree.depth[index].tolist() == [node.depth for node in nodes]
        assert tree.rank[index].tolist() == [node.rank for node in nodes]
        assert tree.tokens[index].tolist() == [index, *(100 * node.depth + node.rank for node in nodes[1:])]
        assert tree.ancestors[index].tolist() == [list(row) for row in expected.ancestor_mask()]
        assert first[index].tolist() == list(expected.next_token())
        assert following[index].tolist() == list(expected.next_sibling())


@given(batches(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=200)
def test_batched_walk_is_the_reference_walk(
    case: tuple[list[list[list[float]]], int], random: Random
) -> None:
    logp, budget = case
    tree, depths = build(logp, budget, keep_spine=False), len(logp[0])
    choice = [[100 * (depth + 1) + random.randrange(3) for depth in row] for row in tree.depth.tolist()]
    walked = batched.walk(tree, torch.tensor(choice), depths)
    counts = StepCounts(Options(depths + 1, budget, len(logp[0][0]), False), "cpu", leads=True)
    counts.add(counts.records(tree, walked))
    steps = []
    for index, request in enumerate(logp):
        expected = walk(best_first(request, budget), tree.tokens[index].tolist(), choice[index])
        length = int(walked.lengths[index])
        assert walked.path[index, :length].tolist() == list(expected.path)
        assert set(walked.path[index, length:].tolist()) <= {-1}
        assert walked.committed[index, :length].tolist() == list(expected.committed)
        assert int(walked.bonus[index]) == expected.committed[-1]
        steps.append(StepRecord(expected.accepted_drafts, length, int(walked.depth[index]), budget))
    totals = counts.totals()
    assert totals.violations() == ()
    assert all(step.violations() == () for step in steps)
    assert (totals.steps, totals.accepted) == (len(steps), sum(step.accepted for step in steps))
    paths = enumerate(walked.path.tolist())
    ranks = [int(tree.rank[row, node]) for row, path in paths for node in path[1:] if node > 0]
    assert list(totals.ranks) == [ranks.count(rank) for rank in range(len(logp[0][0]))]
    assert (totals.committed, totals.nodes) == (sum(s.committed for s in steps), budget * len(steps))


@given(batches(), st.booleans(), st.data())
@settings(deadline=None, max_examples=200)
def test_a_tree_begins_with_every_smaller_one_and_tells_its_commits(
    case: tuple[list[list[list[float]]], int], keep_spine: bool, data: st.DataObject
) -> None:
    logp, budget = case
    size, depths = data.draw(st.integers(1, budget)), len(logp[0])
    tree, small = build(logp, budget, keep_spine=keep_spine), build(logp, size, keep_spine=keep_spine)
    for name in ("tokens", "depth", "rank", "parent", "ancestors"):
        assert getattr(tree.first(size), name).tolist() == getattr(small, name).tolist()
    right = data.draw(st.lists(st.integers(0, 3), min_size=budget, max_size=budget))
    choice = 100 * (tree.depth + 1) + torch.tensor(right)
    within = commits_within(batched.walk(tree, choice, depths).path.tolist(), [size, budget])
    narrow, wide = (batched.walk(one, choice[:, : one.size], depths) for one in (small, tree))
    assert within == [float(walked.lengths.double().mean()) for walked in (narrow, wide)]


def test_plain_decoding_is_a_tree_of_one_node() -> None:
    root = torch.tensor([7, 9], dtype=torch.int32)
    one, built = batched.root_only(root), build([[[-1.0]], [[-1.0]]], 1, keep_spine=False)
    for name in ("depth", "rank", "parent", "ancestors"):
        assert getattr(one, name).tolist() == getattr(built, name).tolist()
    walked = batched.walk(one, torch.tensor([[5], [6]]), 3)
    assert (walked.lengths.tolist(), walked.bonus.tolist()) == ([1, 1], [5, 6])


@given(batches(), st.integers(1, 6))
@settings(deadline=None)
def test_a_forced_walk_follows_the_best_chain(case: tuple[list[list[list[float]]], int], length: int) -> None:
    logp, budget = case
    tree, depths = build(logp, budget, keep_spine=True), len(logp[0])
    choice = 7000 + torch.arange(budget).expand(len(logp), -1)
    walked = batched.forced_walk(tree, choice, depths, min(length, depths + 1))
    counts = StepCounts(Options(depths + 1, budget, len(logp[0][0]), False), "cpu", leads=True)
    counts.add(counts.records(tree, walked))
    assert counts.totals().violations() == ()
    drafts = min(length - 1, depths, budget - 1)
    chain = [100 * depth for depth in range(1, drafts + 1)]
    for index in range(len(logp)):
        assert walked.committed[index, : drafts + 1].tolist() == [*chain, 7000 + drafts]
        assert walked.path[index].tolist() == [*range(drafts + 1), *[-1] * (depths - drafts)]


def test_a_broken_step_is_counted_with_its_evidence() -> None:
    tree = build([[[-1.0, -2.0]]], 3, keep_spine=False)
    walked = batched.walk(tree, torch.tensor([[100, 0, 0]]), 1)
    wrong = batched.BatchedWalk(walked.path, walked.lengths, walked.depth + 4, walked.committed, walked.bonus)
    counts = StepCounts(Options(2, 3, 2, False), "cpu", leads=True)
    counts.add(counts.records(tree, wrong))
    assert counts.totals().broken == 1
    assert "1 of 1 steps broke an invariant" in counts.totals().violations()


def test_bad_drafter_output_still_gives_a_closed_tree() -> None:
    logp = torch.tensor([[[float("nan"), -1.0], [float("inf"), float("-inf")]]])
    tree = batched.build(logp, torch.arange(4).view(1, 2, 2), torch.zeros(1, dtype=torch.long), 7)
    assert (tree.parent[0, 1:] < torch.arange(1, 7)).all()


def test_an_impossible_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="1 to 3 nodes"):
        build([[[-1.0, -2.0]]], 4, keep_spine=False)


def chi_square(counts: torch.Tensor, expected: torch.Tensor) -> tuple[float, int]:
    """Statistic and degrees of freedom over cells expected at least 5 times, the rest pooled."""
    large = expected >= 5
    pooled_counts = torch.cat([counts[large], counts[~large].sum()[None]])
    pooled = torch.cat([expected[large], expected[~large].sum()[None]]).clamp(min=1e-9)
    return float(((pooled_counts - pooled) ** 2 / pooled).sum()), len(pooled) - 1


def limit(freedom: int) -> float:
    """Chi-square quantile at p = 0.001 (Wilson-Hilferty)."""
    return float(freedom * (1 - 2 / (9 * freedom) + 3.0902 * (2 / (9 * freedom)) ** 0.5) ** 3)


def sample_two_tokens(draws: int, *, siblings_apart: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """First two tokens from many tree steps on a 16-token vocabulary: counts [16, 16] and their expectation.

    siblings_apart: the wrong way, a draw for each child of the root instead of one for the root.
    """
    torch.manual_seed(7)
    vocabulary, width, depth = 16, 4, 2
    first = torch.softmax(torch.randn(vocabulary), -1)
    second = torch.softmax(torch.randn(vocabulary, vocabulary), -1)  # given the first token
    draft = torch.log_softmax(torch.randn(1, depth, vocabulary), -1).expand(draws, -1, -1).topk(width, -1)
    tree = batched.build(draft.values, draft.indices, torch.zeros(draws, dtype=torch.long), 12)
    given_token = torch.where(tree.depth[..., None] == 0, first, second[tree.tokens])
    choice = torch.multinomial(given_token.flatten(0, 1), 1).view(draws, -1)
    if siblings_apart:
        child = tree.depth == 1
        own = torch.multinomial(first, tree.tokens.numel(), replacement=True).view_as(tree.tokens)
        hit = (child & (own == tree.tokens)).to(torch.int8)
        taken = tree.tokens.gather(1, hit.argmax(1, keepdim=True))[:, 0]
        choice[:, 0] = torch.where(hit.any(1), taken, choice[:, 0])
    walked = batched.walk(tree, choice, depth)
    one = walked.committed[:, 0]
    rest = torch.multinomial(second[one], 1)[
        :, 0
    ]  # the next step's first token where this step gave only one
    two = torch.where(walked.lengths > 1, walked.committed[:, 1], rest)
    counts = torch.bincount(one * vocabulary + two, minlength=vocabulary**2).double()
    return counts, (first[:, None] * second).flatten().double() * draws


def test_sampling_keeps_the_targets_distribution() -> None:
    statistic, freedom = chi_square(*sample_two_tokens(40_000, siblings_apart=False))
    assert statistic < limit(freedom)


def test_sampling_siblings_apart_is_found_out() -> None:
    statistic, freedom = chi_square(*sample_two_tokens(40_000, siblings_apart=True))
    assert statistic > limit(freedom)
