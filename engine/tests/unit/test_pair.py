"""Which drafters are refused for a target before weights load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kdtree_engine.options import RefusedError
from kdtree_engine.pair import Drafter, Target, check_pair

pytestmark = pytest.mark.unit

TARGET = Target(vocabulary=4096, hidden_size=256, layers=6, context=8192)
DRAFTER = Drafter(
    block_size=8, vocabulary=4096, hidden_size=256, positions=8192, trained_on=6, features=(1, 2, 5)
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocabulary": 5000}, "the drafter's vocabulary is 5000, but the target has 4096"),
        ({"hidden_size": 512}, "the drafter's hidden size is 512, but the target has 256"),
        ({"trained_on": 61}, "the drafter's number of target layers is 61, but the target has 6"),
        ({"features": (1, 6)}, "the drafter reads layer 6 of a target that has 6"),
        ({"features": (-1, 2)}, "the drafter reads layer -1 of a target that has 6"),
        (
            {"positions": 4096},
            "the drafter knows 4096 positions, but context-length is 8192: set speculative-draft-window-size",
        ),
    ],
)
def test_a_drafter_that_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_pair(TARGET, replace(DRAFTER, **changes), None)
    assert str(refused.value) == words


def test_a_window_covers_the_positions_and_what_is_not_named_is_not_judged() -> None:
    check_pair(TARGET, DRAFTER, None)
    check_pair(TARGET, replace(DRAFTER, positions=4096), 1024)
    check_pair(Target(None, None, None, 8192), DRAFTER, None)
    check_pair(TARGET, Drafter(8, None, None, None, None), None)
