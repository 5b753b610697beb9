"""The verify walk in plain Python: which nodes of a tree the target agrees with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdtree_engine.tree import Tree


@dataclass(frozen=True)
class Walk:
    """path: accepted nodes from the root down; committed: the accepted drafts, then the bonus token."""

    path: tuple[int, ...]
    committed: tuple[int, ...]

    @property
    def accepted_drafts(self) -> int:
        return len(self.path) - 1


def walk(tree: Tree, tokens: Sequence[int], target: Sequence[int]) -> Walk:
    """Follow the target through the tree.

    tokens: the token of each node. target: what the target model chose *after* each node, greedily or by one
    draw per node. The path goes to the child that carries the target's choice and ends where there is none.
    Each node's choice is used at most once, and independently of the tree, so sampled output has exactly the
    target's distribution."""
    first, following = tree.next_token(), tree.next_sibling()
    path = [0]
    committed: list[int] = []
    while True:
        wanted = target[path[-1]]
        committed.append(wanted)
        child = first[path[-1]]
        while child != -1 and tokens[child] != wanted:
            child = following[child]
        if child == -1:
            return Walk(tuple(path), tuple(committed))
        path.append(child)
