"""The collective test with two real processes: gloo in the place of NCCL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kdtree_engine import collective


def test_two_ranks_agree(capsys: pytest.CaptureFixture[str]) -> None:
    assert collective.main(["--gpus", "2", "--backend", "gloo", "--seconds", "60", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["ok"]
    assert told["words"].startswith("2 ranks agree: ")


def test_ranks_that_do_not_end_are_named_and_ended(capsys: pytest.CaptureFixture[str]) -> None:
    assert collective.main(["--gpus", "2", "--backend", "gloo", "--seconds", "0.01"]) == 1
    assert "ranks 0, 1 did not end within 0.01 s" in capsys.readouterr().out
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"--rank\x000\x00--gpus\x002" in _read(p)]
    assert not left


def test_a_rank_that_dies_is_named_with_its_words(tmp_path: Path) -> None:
    seen = collective.attempt(2, 20, "nccl", {"CUDA_VISIBLE_DEVICES": ""})
    assert not seen.ok
    assert seen.why.startswith("rank ")
    assert "before the test began" in seen.why


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
