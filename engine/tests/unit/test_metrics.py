"""A step's invariants, and the line operators grep with words that are true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdtree_engine.metrics import StepRecord, Totals

pytestmark = pytest.mark.unit


def totals(accepted: list[int], nodes: int) -> Totals:
    histogram = tuple(accepted.count(value) for value in range(nodes))
    return Totals(
        steps=len(accepted),
        nodes=nodes * len(accepted),
        accepted=sum(accepted),
        committed=sum(accepted) + len(accepted),
        depth=sum(accepted),
        histogram=histogram,
    )


@given(st.lists(st.integers(0, 7)), st.lists(st.integers(0, 7)))
def test_windows_of_sound_steps_are_sound(first: list[int], second: list[int]) -> None:
    window = totals(first + second, 8) - totals(first, 8)
    assert window == totals(second, 8)
    assert window.violations() == ()


def test_the_impossible_line_of_the_field_is_a_violation() -> None:
    step = StepRecord(accepted=2, committed=2, depth=5, nodes=8)
    assert step.violations() == (
        "commit length 2 is not accepted drafts 2 + 1",
        "accepted depth 5 is not accepted drafts 2",
    )
    assert StepRecord(accepted=2, committed=3, depth=2, nodes=8).violations() == ()
    assert StepRecord(accepted=8, committed=9, depth=8, nodes=8).violations()


@pytest.mark.parametrize("field", ["committed", "depth", "accepted", "steps"])
def test_a_wrong_sum_is_found(field: str) -> None:
    sound = totals([1, 2, 3], 8)
    wrong = Totals(**{**vars(sound), field: getattr(sound, field) + 1})
    assert wrong.violations()


def test_log_line_gives_window_means() -> None:
    assert totals([1, 2, 3, 4], 16).log_line(batch_size=2, budget=16) == (
        "DDTREE metrics: bs=2 budget=16 avg_actual_nodes=16.00 avg_accepted_drafts=2.50 "
        "avg_commit_len=3.50 avg_accepted_depth=2.50"
    )
