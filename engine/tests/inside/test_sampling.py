"""Penalties, biases and what ends a path at the root."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kdtree_engine import batched
from kdtree_engine.sglang import penalties, sampling


def info(**given: Any) -> Any:
    names = ("acc_additive_penalties", "acc_scaling_penalties", "logit_bias")
    return SimpleNamespace(has_custom_logit_processor=False, **{**dict.fromkeys(names), **given})


def request(**given: Any) -> Any:
    usual = {
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_new_tokens": 0,
    }
    return SimpleNamespace(sampling_params=SimpleNamespace(**usual | given))


def test_every_node_gets_its_requests_penalties_and_bias() -> None:
    logits = torch.tensor([[1.0, -1.0], [2.0, -2.0], [3.0, -3.0], [4.0, -4.0]])
    sampling.adjust(
        logits,
        info(
            acc_additive_penalties=torch.tensor([[0.0, 0.0], [-1.0, 0.0]]),
            acc_scaling_penalties=torch.tensor([[2.0, 2.0], [1.0, 1.0]]),
            logit_bias=torch.tensor([[0.0, 0.25], [0.0, 0.0]]),
        ),
        2,
    )
    assert logits.tolist() == [[0.5, -1.75], [1.0, -3.75], [2.0, -3.0], [3.0, -4.0]]


def test_nothing_to_adjust_changes_nothing() -> None:
    logits = torch.randn(4, 3)
    kept = logits.clone()
    sampling.adjust(logits, info(), 2)
    sampling.adjust(logits, None, 2)
    assert logits.tolist() == kept.tolist()


@pytest.mark.parametrize(
    "penalty",
    [
        {"frequency_penalty": 0.1},
        {"presence_penalty": -0.1},
        {"repetition_penalty": 1.1},
        {"min_new_tokens": 2},
    ],
)
def test_each_penalty_is_noticed(penalty: dict[str, float]) -> None:
    batch = SimpleNamespace(
        reqs=[request(), request(**penalty)], sampling_info=info(acc_additive_penalties=torch.zeros(2, 3))
    )
    assert penalties.penalised(batch) == [False, True]
    batch.sampling_info = info()
    assert penalties.penalised(batch) == [False, False]


def test_a_path_ended_at_the_root_is_one_token_of_plain_decoding() -> None:
    logp = torch.tensor([[[-0.1, -3.0], [-0.1, -3.0]]]).expand(2, -1, -1)
    candidates = torch.tensor([[[5, 6], [7, 8]]]).expand(2, -1, -1)
    tree = batched.build(logp, candidates, torch.tensor([1, 2]), 5)
    choice = torch.where(tree.depth == 0, 5, 7)
    walked = batched.walk(tree, choice, 2)
    assert walked.lengths.tolist() == [3, 3]
    ended = walked.stopped_at_root(torch.tensor([True, False]))
    assert ended.lengths.tolist() == [1, 3]
    assert ended.depth.tolist() == [0, 2]
    assert ended.bonus.tolist() == [5, int(walked.bonus[1])]
    assert ended.path[0].tolist() == [0, -1, -1]
    assert ended.path[1].tolist() == walked.path[1].tolist()


def test_the_last_token_is_counted_for_ddtree_alone() -> None:
    counted: list[str] = []

    def batch(name: str, *, tree: bool, required: bool) -> Any:
        return SimpleNamespace(
            spec_algorithm=SimpleNamespace(takes_tree_mask=tree),
            sampling_info=SimpleNamespace(penalizer_orchestrator=SimpleNamespace(is_required=required)),
            cumulate_penalty_output_tokens=lambda: counted.append(name),
        )

    penalties.count_last_token(None, batch("tree", tree=True, required=True))
    penalties.count_last_token(None, batch("no penalties", tree=True, required=False))
    penalties.count_last_token(None, batch("dflash", tree=False, required=True))
    penalties.count_last_token(
        None, SimpleNamespace(**{**vars(batch("idle", tree=True, required=True)), "sampling_info": None})
    )
    assert counted == ["tree"]
