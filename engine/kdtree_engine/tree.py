"""The draft tree in plain Python: the definition that the batched builder is tested against.

A block drafter gives, for each of D positions, K candidates with their log-probabilities. A *prefix* is a
choice of one candidate for each of the first d positions; its score is the sum of their log-probabilities.
The tree of budget N is the root (the token already known) plus the N - 1 prefixes with the highest score
(DDTree: optimal under the product of the per-position marginals). A prefix scores at most as much as its own
parent, so the set is closed under parents."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Node:
    """One row of the verify batch. depth: tokens after the root; rank: candidate at that position; parent:
    node index.

    The root is depth 0, rank -1, parent -1.
    """

    depth: int
    rank: int
    parent: int


ROOT = Node(depth=0, rank=-1, parent=-1)


@dataclass(frozen=True)
class Tree:
    """Nodes in order of selection; every parent stands before its children."""

    nodes: tuple[Node, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def next_token(self) -> tuple[int, ...]:
        """First child of each node, -1 for a leaf."""
        first = [-1] * len(self.nodes)
        for index, node in enumerate(self.nodes[1:], 1):
            if first[node.parent] == -1:
                first[node.parent] = index
        return tuple(first)

    def next_sibling(self) -> tuple[int, ...]:
        """The next node with the same parent, -1 for the last one."""
        following = [-1] * len(self.nodes)
        last: dict[int, int] = {}
        for index, node in enumerate(self.nodes[1:], 1):
            if node.parent in last:
                following[last[node.parent]] = index
            last[node.parent] = index
        return tuple(following)

    def ancestor_mask(self) -> tuple[tuple[bool, ...], ...]:
        """N x N; row i is true at i and at every ancestor of i: what node i may attend to inside the tree."""
        rows: list[list[bool]] = []
        for index, node in enumerate(self.nodes):
            row = list(rows[node.parent]) if node.parent >= 0 else [False] * len(self.nodes)
            row[index] = True
            rows.append(row)
        return tuple(tuple(row) for row in rows)


def max_nodes(depth: int, width: int) -> int:
    """The most nodes a tree of this depth (draft positions) and width (candidates per position) can have."""
    return sum(width**level for level in range(max(depth, 0) + 1))


def best_first(logp: Sequence[Sequence[float]], budget: int, *, keep_spine: bool = False) -> Tree:
    """Build the tree of `budget` nodes, root included.

    logp: D rows of K log-probabilities, each row sorted from the best down. keep_spine: take the whole chain
    of best candidates first, then fill up with the best of the rest. Order and ties: score, then the
    shallower node, then the one whose parent came first, then the lower rank. Raises ValueError for a budget
    that no such tree can have, for unsorted rows and for values that are no log-probabilities.
    """
    _check(logp, budget)
    nodes = [ROOT]
    scores = [0.0]
    spine = min(len(logp), budget - 1) if keep_spine else 0
    for depth in range(1, spine + 1):
        nodes.append(Node(depth, 0, depth - 1))
        scores.append(scores[-1] + logp[depth - 1][0])

    # (-score, depth, parent, rank): a child and a next sibling never sort before the entry that leads to
    # them.
    heap: list[tuple[float, int, int, int]] = []

    def offer(parent: int, rank: int) -> None:
        depth = nodes[parent].depth + 1
        if depth <= len(logp) and rank < len(logp[depth - 1]):
            heapq.heappush(heap, (-(scores[parent] + logp[depth - 1][rank]), depth, parent, rank))

    for index in range(len(nodes)):
        offer(index, 1 if index < spine else 0)
    while len(nodes) < budget:
        negative, depth, parent, rank = heapq.heappop(heap)
        nodes.append(Node(depth, rank, parent))
        scores.append(-negative)
        offer(parent, rank + 1)
        offer(len(nodes) - 1, 0)
    return Tree(tuple(nodes))


def _check(logp: Sequence[Sequence[float]], budget: int) -> None:
    widths = {len(row) for row in logp}
    if len(widths) != 1 or 0 in widths:
        raise ValueError("every draft position needs the same number of candidates, at least one")
    for row in logp:
        if any(math.isnan(value) or value > 0 for value in row):
            raise ValueError("log-probabilities are at most 0")
        if any(left < right for left, right in itertools.pairwise(row)):
            raise ValueError("the candidates of a position must be sorted from the best down")
    limit = max_nodes(len(logp), widths.pop())
    if not 1 <= budget <= limit:
        raise ValueError(f"a tree of this depth and width has 1 to {limit} nodes, not {budget}")
