"""Acceptance at each position of a block."""

from __future__ import annotations

from collections.abc import Sequence

_REACHED = 20
"""The fewest steps that must have come to a position before its acceptance is judged."""


def conditional(histogram: Sequence[int]) -> dict[int, float]:
    """Return position → share of the steps that reached it in which its draft was accepted."""
    found = {}
    for position in range(1, len(histogram)):
        reached = sum(histogram[position - 1 :])
        if reached >= _REACHED:
            found[position] = sum(histogram[position:]) / reached
    return found


def shares(histogram: Sequence[int]) -> str:
    """Return the shares as one line."""
    return " ".join(f"{share:.2f}" for share in conditional(histogram).values()) or "too few steps"
