"""The tree's definition against brute force, and the walk against its own definition."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdtree_engine.accept import walk
from kdtree_engine.tree import Tree, best_first, max_nodes

pytestmark = pytest.mark.unit


@st.composite
def marginals(draw: st.DrawFn) -> list[list[float]]:
    """D positions of K sorted log-probabilities; few distinct values, so that ties are common."""
    depth, width = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    values = st.sampled_from([0.0, -0.25, -0.5, -1.0, -2.0, -4.0])
    row = st.lists(values, min_size=width, max_size=width).map(lambda found: sorted(found, reverse=True))
    return draw(st.lists(row, min_size=depth, max_size=depth))


def paths(tree: Tree) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for node in tree.nodes:
        found.append((*found[node.parent], node.rank) if node.parent >= 0 else ())
    return found


def score(logp: list[list[float]], path: tuple[int, ...]) -> float:
    return sum(logp[position][rank] for position, rank in enumerate(path))


def every_path(logp: list[list[float]]) -> list[tuple[int, ...]]:
    width = len(logp[0])
    return [
        path for depth in range(1, len(logp) + 1) for path in itertools.product(range(width), repeat=depth)
    ]


@given(marginals(), st.data())
def test_tree_holds_the_best_prefixes(logp: list[list[float]], data: st.DataObject) -> None:
    budget = data.draw(st.integers(1, max_nodes(len(logp), len(logp[0]))))
    chosen = paths(best_first(logp, budget))[1:]
    best = sorted((score(logp, path) for path in every_path(logp)), reverse=True)[: budget - 1]
    assert len(set(chosen)) == budget - 1
    assert sorted((score(logp, path) for path in chosen), reverse=True) == best


@given(marginals(), st.data())
def test_spine_comes_first_and_the_rest_is_the_best_of_the_rest(
    logp: list[list[float]], data: st.DataObject
) -> None:
    budget = data.draw(st.integers(1, max_nodes(len(logp), len(logp[0]))))
    chosen = paths(best_first(logp, budget, keep_spine=True))
    spine = [(0,) * depth for depth in range(len(logp) + 1)][:budget]
    rest = sorted((score(logp, path) for path in every_path(logp) if path not in spine), reverse=True)
    assert chosen[: len(spine)] == spine
    assert (
        sorted((score(logp, path) for path in chosen[len(spine) :]), reverse=True)
        == rest[: budget - len(spine)]
    )


@given(marginals(), st.data(), st.booleans())
def test_shape_arrays_agree_with_the_nodes(
    logp: list[list[float]], data: st.DataObject, keep_spine: bool
) -> None:
    budget = data.draw(st.integers(1, max_nodes(len(logp), len(logp[0]))))
    tree = best_first(logp, budget, keep_spine=keep_spine)
    first, following, mask, found = tree.next_token(), tree.next_sibling(), tree.ancestor_mask(), paths(tree)
    for index, node in enumerate(tree.nodes):
        assert node.parent < index
        assert node.depth == len(found[index])
        children = []
        child = first[index]
        while child != -1:
            children.append(child)
            child = following[child]
        assert children == [other for other, candidate in enumerate(tree.nodes) if candidate.parent == index]
        for other in range(len(tree)):
            is_prefix = found[other] == found[index][: len(found[other])]
            assert mask[index][other] == is_prefix


@given(marginals(), st.data())
def test_walk_is_the_longest_path_the_target_agrees_with(
    logp: list[list[float]], data: st.DataObject
) -> None:
    tree = best_first(logp, data.draw(st.integers(1, max_nodes(len(logp), len(logp[0])))))
    tokens = [node.rank for node in tree.nodes]
    target = data.draw(st.lists(st.integers(0, 3), min_size=len(tree), max_size=len(tree)))
    result = walk(tree, tokens, target)
    by_path = {path: index for index, path in enumerate(paths(tree))}
    expected: list[int] = []
    node = 0
    while True:
        expected.append(target[node])
        if tuple(expected) not in by_path:
            break
        node = by_path[tuple(expected)]
    assert result.committed == tuple(expected)
    assert result.accepted_drafts == len(result.committed) - 1


def test_ties_go_to_the_shallower_then_the_earlier_parent_then_the_lower_rank() -> None:
    certain = [[0.0, 0.0], [0.0, 0.0]]
    assert paths(best_first(certain, 7)) == [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("logp", "budget", "words"),
    [
        ([[-1.0, -2.0]], 4, "1 to 3 nodes"),
        ([[-1.0, -2.0]], 0, "1 to 3 nodes"),
        ([[-2.0, -1.0]], 2, "sorted"),
        ([[0.5]], 2, "at most 0"),
        ([[float("nan")]], 2, "at most 0"),
        ([[-1.0], [-1.0, -2.0]], 2, "same number"),
        ([], 1, "same number"),
        ([[]], 1, "same number"),
    ],
)
def test_impossible_input_is_refused(logp: list[list[float]], budget: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        best_first(logp, budget)
