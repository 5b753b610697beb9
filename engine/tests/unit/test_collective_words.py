"""What the collective test says of how its runs ended."""

import pytest
from kdtree_engine.collective import LARGE, Attempt, judge, last_error

pytestmark = pytest.mark.unit
GOOD, HUNG = Attempt(True, 20.0, 400.0), Attempt(False, why="ranks 0, 1 did not end within 20 s")


def test_ranks_that_agree_pass_with_their_speed() -> None:
    told = judge(2, GOOD, None, p2p_off=False)
    assert (told["ok"], told["slow"], told["remedy"]) == (True, False, "")
    assert "2 ranks agree: 16 KiB in 20 µs, 64 MiB in 0.40 ms (167.8 GB/s bus)" in told["words"]


def test_the_slower_path_is_told() -> None:
    told = judge(2, GOOD, None, p2p_off=True)
    assert (told["ok"], told["slow"]) == (True, True)
    assert "peer-to-peer is off" in told["words"]


def test_a_hang_that_peer_to_peer_makes_is_named_with_its_remedy() -> None:
    told = judge(8, HUNG, GOOD, p2p_off=False)
    assert not told["ok"]
    assert "did not end within 20 s; without it: 16 KiB" in told["words"]
    assert 'NCCL_P2P_DISABLE: "1"' in told["remedy"]


def test_what_fails_both_ways_does_not_blame_peer_to_peer() -> None:
    told = judge(8, HUNG, Attempt(False, why="rank 3 failed: CUDA error"), p2p_off=False)
    assert not told["ok"]
    assert "rank 3 failed" in told["words"]
    assert "NCCL_P2P_DISABLE" not in told["remedy"]


def test_bus_bandwidth_counts_as_nccl_tests_do() -> None:
    assert Attempt(True, 1.0, 1e6).bandwidth(8) == pytest.approx(2 * 7 / 8 * LARGE)


def test_a_failed_rank_is_told_by_its_exception_and_not_by_torchs_hints() -> None:
    said = "Traceback:\n  x\ntorch.AcceleratorError: CUDA error: invalid device ordinal\nCompile with `X`.\n"
    assert last_error(said) == "torch.AcceleratorError: CUDA error: invalid device ordinal"
    assert (last_error("killed"), last_error("")) == ("killed", "no word")
