"""What the choice of widths is fed: commit lengths of every width, and only clean step times."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kdtree_engine.batched import BatchedWalk
from kdtree_engine.options import Options
from kdtree_engine.policy import Choice, Policy
from kdtree_engine.sglang import budget as module
from kdtree_engine.sglang.budget import Budget
from kdtree_engine.sglang.plain import report, uncount

OPTIONS = Options(block_size=4, budget=16, topk_cap=3, keep_spine=False, auto=(1, 4, 8, 16))


def walked(*paths: list[int]) -> BatchedWalk:
    path = torch.tensor([[*found, *[-1] * (4 - len(found))] for found in paths])
    lengths = (path >= 0).sum(1)
    return BatchedWalk(path, lengths, lengths - 1, path, path[:, 0])


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Choice, float | None, list[float]]]:
    """What the policy is told, with a clock that advances by 1 s a look."""
    seen: list[Any] = []
    clock = iter(range(1000))
    monkeypatch.setattr(Policy, "observe", lambda _, *told: seen.append(told))
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    return seen


def batch(*lens: int) -> Any:
    return SimpleNamespace(seq_lens_cpu=torch.tensor(lens), spec_info=None)


def test_commits_of_all_widths_and_times_without_a_prefill(observed: list[Any]) -> None:
    budget = Budget(OPTIONS)
    for path in ([0, 1, 5, 9], [0], [0, 2]):
        assert budget.choose(batch(100, 300)) == 16
        budget.launched(walked(path, [0, 3, 7]))
    assert [budget.finished() for _ in range(3)] == [16, 16, 16]
    assert [commits for _, _, commits in observed] == [[1, 2, 3, 3.5], [1, 1.5, 2, 2], [1, 2, 2.5, 2.5]]
    assert [seconds for _, seconds, _ in observed] == [None, 1, 1]
    budget.choose(batch(100, 300))
    budget.interrupted()
    budget.launched(walked([0]))
    budget.finished()
    assert observed[-1][1] is None
    assert sum(budget.take_chosen().values()) == 7
    assert not budget.take_chosen()


def test_without_lengths_on_the_host_the_bound_on_them_counts(observed: list[Any]) -> None:
    budget = Budget(OPTIONS)
    bound = SimpleNamespace(nxt_kv_lens_cpu=torch.tensor([5000]))
    budget.choose(SimpleNamespace(seq_lens_cpu=None, spec_info=bound))
    budget.launched(walked([0]))
    budget.finished()
    assert observed[0][0].cell.context == 7


@pytest.mark.parametrize(("rows", "steps"), [(1, 4), (8, 5)])
def test_a_plain_step_is_taken_out_of_the_verify_steps(rows: int, steps: int) -> None:
    def request(*, done: bool) -> Any:
        return SimpleNamespace(
            is_retracted=False,
            finished=lambda: done,
            spec_verify_ct=5,
            spec_correct_drafts_histogram=[3, 2],
            spec_num_block_accept_tokens=0,
        )

    running, done = request(done=False), request(done=True)
    ddtree = SimpleNamespace(takes_tree_mask=True)
    step = SimpleNamespace(reqs=[running, done], spec_algorithm=ddtree)
    assert uncount([[4]], None, SimpleNamespace(speculative_num_draft_tokens=rows), step) == [[4]]
    assert (running.spec_verify_ct, sum(running.spec_correct_drafts_histogram)) == (steps, steps)
    assert running.spec_num_block_accept_tokens == 5 - steps
    assert (done.spec_verify_ct, sum(done.spec_correct_drafts_histogram)) == (5, 5)


@pytest.mark.parametrize("options", [OPTIONS, replace(OPTIONS, auto=()), None])
def test_a_request_tells_its_plain_steps_where_widths_are_chosen(options: Options | None) -> None:
    manager = SimpleNamespace(server_args=SimpleNamespace(_ddtree_options=options))
    told: dict[str, int] = {}
    report(None, manager, told, SimpleNamespace(spec_num_block_accept_tokens=[3, 7]), 1)
    assert told == ({"spec_plain_steps": 7} if options is not None and options.auto else {})
