"""Which order the legs run in: drawn with a seed from the list of drift-balanced orders.

An order is balanced if no arm sits, on average, far from the middle of the run: a host that warms up or a
neighbour that grows busy must not look like an arm. The list must stay long enough for a permutation test, so
the tolerance grows with the run: 4 + 4 legs have 46 such orders, which reach p = 0.043.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

_TOLERANCE = 3 / 32
MOST_LEGS = 8
"""An arm's legs at most: all splits of 8 + 8 are still listed in milliseconds."""


def balanced(order: Sequence[int]) -> bool:
    """True if every arm's mean position is near the middle. order: the arm index of each leg."""
    return all(
        abs(sum(i for i, found in enumerate(order) if found == arm) / order.count(arm) - (len(order) - 1) / 2)
        <= _allowed(len(order), order.count(arm))
        for arm in set(order)
    )


def _allowed(length: int, legs: int) -> float:
    return (length - 1) / 2 if legs == 1 else _TOLERANCE * length + 1e-9


def draw(arms: int, legs: int, seed: int) -> tuple[int, ...]:
    """Return one balanced order, uniformly from all of them (rejection sampling)."""
    source = random.Random(seed)
    order = [arm for arm in range(arms) for _ in range(legs)]
    while True:
        source.shuffle(order)
        if balanced(order):
            return tuple(order)


@lru_cache(maxsize=32)
def _choices(shared: int, legs: int) -> Any:
    """Return every way to choose `legs` of `shared` places, as rows of booleans."""
    rows = list(itertools.combinations(range(shared), legs))
    chosen = np.zeros((len(rows), shared), dtype=bool)
    chosen[np.arange(len(rows))[:, None], np.asarray(rows)] = True
    return chosen


def alternatives(order: Sequence[int], first: int, second: int) -> Any:
    """Return the list a permutation test of two arms uses, as rows of booleans over the legs: `second` runs
    there. A row stands for a balanced order that differs from `order` only in which of the two arms runs at
    the positions they share; `order` itself is one of them.
    """
    shared = np.flatnonzero([arm in (first, second) for arm in order])
    chosen = _choices(len(shared), list(order).count(second))
    middle = (len(order) - 1) / 2
    near = np.ones(len(chosen), dtype=bool)
    for side in (chosen, ~chosen):
        legs = int(side[0].sum())
        near &= np.abs(side @ shared / legs - middle) <= _allowed(len(order), legs)
    rows = np.zeros((int(near.sum()), len(order)), dtype=bool)
    rows[:, shared] = chosen[near]
    return rows
