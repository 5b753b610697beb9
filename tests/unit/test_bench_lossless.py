"""Identical, numerically equivalent or not lossless: by margins; the baseline itself is the yardstick."""

from __future__ import annotations

import pytest

from kdops.bench.lossless import Reference, judge, split_reference
from kdops.bench.results import Lossless

pytestmark = pytest.mark.unit

PROMPTS = [f"prose/{i}" for i in range(20)]
SAME = dict.fromkeys(PROMPTS, (1, 2, 3, 4))
MARGINS = dict.fromkeys(PROMPTS, (5.0, 0.02, 0.5, 3.0))


def parted(number: int, at: int) -> dict[str, tuple[int, ...]]:
    """The first `number` outputs differ from position `at` on."""
    changed = {key: (*SAME[key][:at], *(9 for _ in SAME[key][at:])) for key in PROMPTS[:number]}
    return {**SAME, **changed}


def reference(own: int, at: int = 1) -> Reference:
    """An autoregressive arm that differs from itself in `own` prompts."""
    return Reference(SAME, MARGINS, [SAME, parted(own, at)])


def test_equal_tokens_are_identical() -> None:
    assert judge([SAME, SAME], reference(3), exact=False)[0] is Lossless.IDENTICAL


def test_fp32_forgives_nothing() -> None:
    found, why = judge([parted(1, 1)], reference(5), exact=True)
    assert found is Lossless.DIFFERENT and "1 of 20 outputs differ, the first in prose/0 at token 2" in why


def test_ties_that_the_baseline_flips_too_are_equivalent() -> None:
    found, why = judge([parted(2, 1)], reference(2), exact=False)
    assert found is Lossless.EQUIVALENT and "2 ties" in why and "0.02" in why


def test_a_margin_that_the_baseline_never_overturns_is_a_difference() -> None:
    found, why = judge([parted(1, 2)], reference(5, at=1), exact=False)
    assert found is Lossless.DIFFERENT and "0.5000" in why and "0.0200" in why


def test_too_many_ties_are_a_difference() -> None:
    found, why = judge([parted(12, 1)], reference(2), exact=False)
    assert found is Lossless.DIFFERENT and "12 of 20 prompts differ, 2 against itself" in why


def test_a_baseline_that_never_diverges_excuses_nothing() -> None:
    assert judge([parted(1, 1)], reference(0), exact=False)[0] is Lossless.DIFFERENT


def test_without_margins_nothing_is_decided() -> None:
    bare = Reference(SAME, {}, [parted(1, 1)])
    assert judge([parted(1, 1)], bare, exact=False)[0] is Lossless.UNDECIDED
    assert judge([parted(1, 1)], Reference(SAME, MARGINS), exact=False)[0] is Lossless.UNDECIDED
    assert judge([{}], reference(1), exact=False)[0] is Lossless.UNDECIDED


def test_a_shorter_output_parts_where_it_ends() -> None:
    short = {**SAME, PROMPTS[0]: (1, 2)}
    found, why = judge([short], reference(1), exact=True)
    assert found is Lossless.DIFFERENT and "at token 3" in why


def test_the_reference_leg_is_sorted_by_stage() -> None:
    outputs = {"prose/0": (1,), "again-4/prose/0": (2,), "again-16/prose/0": (3,), "long/0": (4,)}
    found = split_reference(outputs, {"prose/0": (0.1,)}, ["prose"])
    assert found.outputs == {"prose/0": (1,)}
    assert found.again == ({"prose/0": (2,)}, {"prose/0": (3,)})
