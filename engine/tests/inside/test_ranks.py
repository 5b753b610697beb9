"""What the ranks of a tensor-parallel group send each other for a tree, and how a disagreement is found."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kdtree_engine import batched
from kdtree_engine.sglang import draft, ranks

RANKS, ROWS, HIDDEN, VOCABULARY, WIDTH = 2, 7, 16, 1000, 4


@dataclass
class Exchange:
    """Two threads as two ranks; counts what each sends."""

    sent: list[int] = field(default_factory=lambda: [0] * RANKS)
    _slots: list[Any] = field(default_factory=lambda: [None] * RANKS)
    _barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(RANKS, timeout=30))

    def group(self, rank: int) -> Any:
        def all_gather(own: torch.Tensor, dim: int) -> torch.Tensor:
            self.sent[rank] += own.numel() * own.element_size()
            self._slots[rank] = own
            self._barrier.wait()
            everyone = torch.cat(self._slots, dim)
            self._barrier.wait()
            return everyone

        return SimpleNamespace(world_size=RANKS, all_gather=all_gather)


def on_every_rank(work: Callable[[int], Any]) -> list[Any]:
    with concurrent.futures.ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(work, range(RANKS)))


def test_a_split_vocabulary_gives_the_same_candidates_for_a_few_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(ROWS, HIDDEN), torch.randn(VOCABULARY, HIDDEN)
    monkeypatch.setattr(draft.sgl, "get_parallel", lambda: SimpleNamespace(tp_group=None))
    whole = draft.top_candidates(hidden, SimpleNamespace(weight=weight), WIDTH)

    exchange, local, half = Exchange(), threading.local(), VOCABULARY // RANKS
    monkeypatch.setattr(draft.sgl, "get_parallel", lambda: SimpleNamespace(tp_group=local.group))

    def one(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        local.group = exchange.group(rank)
        padded = torch.cat([weight[rank * half :][:half], torch.full((24, HIDDEN), 9.0)])
        shard = SimpleNamespace(num_org_elements=half, org_vocab_start_index=rank * half)
        return draft.top_candidates(hidden, SimpleNamespace(weight=padded, shard_indices=shard), WIDTH)

    for logp, tokens in on_every_rank(one):
        assert tokens.tolist() == whole[1].tolist()
        torch.testing.assert_close(logp, whole[0])
    of_a_row = WIDTH * (4 + 8) + 4  # values, ids, the normaliser
    assert exchange.sent == [ROWS * of_a_row] * RANKS
    assert ROWS * of_a_row * 10 < ROWS * half * 4  # what gathering the logits would send


@pytest.mark.parametrize(("part", "where"), [("tree", "tokens"), ("walk", "path"), ("commit", "committed")])
def test_a_rank_that_takes_another_step_is_named(part: str, where: str) -> None:
    torch.manual_seed(1)
    logp = torch.log_softmax(torch.randn(2, 3, 5), -1).topk(3, -1)
    tree = batched.build(logp.values, logp.indices, torch.tensor([1, 2]), 8)
    walked = batched.walk(tree, torch.randint(0, 5, (2, 8)), 3)
    exchange = Exchange()

    def one(rank: int) -> str:
        own_tree, own_walk = tree, walked
        if rank and where == "tokens":
            own_tree = replace(tree, tokens=tree.tokens + 1)
        elif rank and where != "none":
            own_walk = replace(walked, **{where: getattr(walked, where) + 1})
        try:
            ranks.check(exchange.group(rank), own_tree, own_walk)
        except ranks.RanksDifferError as error:
            return str(error)
        return ""

    for said in on_every_rank(one):
        assert said.startswith(f"ranks [1] took another {part} than rank 0: ")
    where = "none"
    assert on_every_rank(one) == ["", ""]


def test_a_rank_that_chose_another_width_is_named() -> None:
    exchange = Exchange()

    def one(rank: int) -> str:
        with pytest.raises(ranks.RanksDifferError) as error:
            ranks.check_width(exchange.group(rank), 8 + rank, "cpu")
        return str(error.value)

    assert on_every_rank(one) == ["ranks [1] took another width than rank 0: [[8], [9]]"] * 2


def _own_process(rank: int, store: str) -> list[float]:
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=RANKS)
    group = SimpleNamespace(first_rank=0, cpu_group=torch.distributed.group.WORLD)
    found = ranks.first_ranks(group, [rank + 0.25, float("nan")])
    torch.distributed.destroy_process_group()
    return found


def test_every_rank_gets_the_first_ones_numbers(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(RANKS) as pool:
        asked = [(rank, f"file://{tmp_path}/store") for rank in range(RANKS)]
        for time, missing in pool.starmap(_own_process, asked, chunksize=1):
            assert time == 0.25
            assert missing != missing


@pytest.mark.parametrize(
    ("environment", "size", "expected"),
    [
        ({}, 2, False),
        ({ranks.VARIABLE: "1"}, 2, True),
        ({ranks.VARIABLE: "1"}, 1, False),
        ({ranks.VARIABLE: "0"}, 2, False),
    ],
)
def test_ranks_are_compared_on_demand_only(environment: dict[str, str], size: int, expected: bool) -> None:
    assert ranks.wanted(environment, size) is expected
