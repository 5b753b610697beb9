"""The shared page: what one process writes, another reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from kdtree_engine import page
from kdtree_engine.page import Phase

pytestmark = pytest.mark.unit


def test_a_second_mapping_sees_the_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(page.VARIABLE, "")
    assert page.attach() is None
    mine = page.create(tmp_path / "page")
    theirs = page.attach()
    assert theirs is not None
    theirs.turns += 1 << 40
    theirs.enter(Phase.KV_CACHE)
    assert (mine.turns, Phase(mine.phase).label) == (1 << 40, "kv-cache")
    assert list(mine.phase_seconds()) == [Phase.IMPORTS]
    assert (
        mine.phase_seconds()[Phase.IMPORTS]
        == theirs.entered[Phase.KV_CACHE] - theirs.entered[Phase.IMPORTS]
        > 0
    )
    assert (tmp_path / "page").stat().st_mode & 0o777 == 0o600
