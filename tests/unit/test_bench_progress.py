"""How long it will take, and the bar that says so."""

from __future__ import annotations

import pytest

from kdops.bench.progress import Progress
from kdops.cli.ab_bar import line

pytestmark = pytest.mark.unit
NOW = Progress(3, 9, "ddtree", "prose", 400, 1000)


def test_what_is_left_counts_only_what_this_process_measured() -> None:
    assert NOW.left(60) == pytest.approx(90)
    assert Progress(3, 9, "ddtree", "", 400, 1000, resumed=400).left(60) is None
    assert Progress(3, 9, "ddtree", "", 500, 1000, resumed=400).left(60) == pytest.approx(300)


def test_the_bar_says_share_time_and_place() -> None:
    text = line(NOW, 60).plain
    assert " 40%  1:00, about 1:30 left" in text and "leg 3 of 9: ddtree · prose" in text
    assert text.count("━") == 24
    assert "left" not in line(Progress(0, 0, "", "", 0, 0), 3700).plain
    assert "1:01:40" in line(Progress(0, 0, "", "", 0, 0), 3700).plain
