"""What the captured graphs of drafter and target share: the tree, the target's choices, the walk.

The drafter's graph ends with candidates and tree, the target's begins with the mask and ends with argmax,
walk and counts (SGLang's capture_tail_hooks and capture_head_hooks). So a greedy step launches two graphs
and the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch

from kdtree_engine.batched import BatchedTree, BatchedWalk
from kdtree_engine.options import Options
from kdtree_engine.sglang import treeops
from kdtree_engine.sglang.outcome import Outcome, settle
from kdtree_engine.sglang.stepcounts import StepCounts
from kdtree_engine.sglang.treemask import write_captured

Group = TypeVar("Group", BatchedTree, BatchedWalk)


class CapturedStep:
    """Static tensors for up to `rows` requests. All calls are ordered by the forward stream."""

    def __init__(self, options: Options, counts: StepCounts, rows: int, device: Any) -> None:
        self._options = options
        self._counts = counts
        width = options.topk_cap
        logp = torch.zeros(rows, options.depths, width, device=device)
        candidates = torch.arange(width, device=device).expand_as(logp)
        root = torch.zeros(rows, dtype=torch.int64, device=device)
        self._tree = treeops.build(options, logp, candidates, root)
        self._choice = torch.zeros_like(self._tree.tokens)
        self._walk = treeops.walk(options, self._tree, self._choice)
        self._records = counts.records(self._tree, self._walk)
        self._outcomes: dict[int, Outcome] = {}  # by rows; made when the target's feature width is known

    def tree(self, bs: int) -> BatchedTree:
        return _rows(self._tree, bs)

    def store_tree(self, tree: BatchedTree) -> None:
        """Before a target replay whose tree was not built inside the drafter's graph."""
        _copy(tree, self._tree.first(tree.size))

    def result(self, bs: int, size: int) -> tuple[torch.Tensor, BatchedWalk, torch.Tensor, Outcome]:
        """Choices, walk, records and outcome of the target's last replay, of `size` rows; good until the next
        one but for the outcome's tokens and numbers, which the scheduler keeps.
        """
        made = self._outcomes.get(size)
        if made is None:
            raise RuntimeError(f"no graph of the target was captured with {size} rows")
        made = made.first(bs)
        outcome = replace(made, tokens=made.tokens.clone(), numbers=made.numbers.clone())
        return self._choice[:bs, :size], _rows(self._walk, bs), self._records[:bs], outcome

    def proposer(self, candidates: treeops.Candidates) -> Callable[[torch.Tensor, torch.Tensor], None]:
        """The drafter's tail: SGLang's draft sampler contract (hidden states [rows, h], input ids [rows])."""

        def propose(hidden: torch.Tensor, input_ids: torch.Tensor) -> None:
            ids = input_ids.view(-1, self._options.block_size)
            self.store_tree(treeops.grow(self._options, hidden, ids, candidates))

        return propose

    def target_head(self, runner: Any, forward_batch: Any) -> None:
        """capture_head_hooks of the target. A graph of fewer rows verifies the beginning of each tree."""
        if runner.captured_req_width > 1:
            write_captured(runner, forward_batch, self._tree.first(runner.captured_req_width).ancestors)

    def target_tail(self, runner: Any, output: Any, forward_batch: Any, _num_tokens: int) -> None:
        """capture_tail_hooks of the target."""
        bs, size = forward_batch.batch_size, runner.captured_req_width
        tree = self.tree(bs).first(size)
        choice = output.next_token_logits.argmax(-1).view(tree.tokens.shape)
        walked = treeops.walk(self._options, tree, choice)
        self._choice[:bs, :size].copy_(choice)
        _copy(walked, self._walk)
        self._records[:bs].copy_(self._counts.records(tree, walked))
        lens = forward_batch.seq_lens[:bs] - int(size == 1)  # plain decoding counts its own row too
        cache_loc = forward_batch.out_cache_loc[: bs * size]
        outcome = settle(walked, lens, cache_loc, output.hidden_states, size)
        if size not in self._outcomes:
            self._outcomes[size] = outcome.room(len(self._choice))
        _copy(outcome, self._outcomes[size].first(bs))


def _rows(group: Group, bs: int) -> Group:
    return type(group)(**{field.name: getattr(group, field.name)[:bs] for field in fields(group)})


def _copy(source: Group | Outcome, into: Group | Outcome) -> None:
    for field in fields(source):
        values = getattr(source, field.name)
        getattr(into, field.name)[: len(values)].copy_(values)
