"""Chooses the verify width of every batch when `--ddtree-budget` is auto.

The choice is made on the host before the step. What it goes by, step times and commit lengths, arrives with
the results that SGLang fetches anyway: the accepted paths ride in a small copy ahead of SGLang's own."""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import Any

import torch

from kdtree_engine.agreed import AgreedPolicy, Exchange
from kdtree_engine.batched import BatchedWalk
from kdtree_engine.options import Options
from kdtree_engine.policy import Choice, Policy, Reason, commits_within
from kdtree_engine.sglang.window import host_lens


@dataclass(frozen=True)
class _Pending:
    """A launched step. paths: [b, D + 1] on the host once the step's result is there; clean: nothing but this
    step lies between the result before and its own."""

    choice: Choice
    paths: torch.Tensor
    clean: bool


class Budget:
    """Steps are launched and finish in the same order, with one or two under way."""

    def __init__(self, options: Options, exchange: Exchange | None = None) -> None:
        """exchange: gives the first rank's numbers for one's own (see `agreed`); None for a single rank."""
        widths, block = options.auto, options.block_size
        self._policy = AgreedPolicy(widths, block, exchange) if exchange else Policy(widths, block)
        self._pending: deque[_Pending] = deque()
        self._clean = False
        self._done_at = 0.0
        self._choice: Choice | None = None
        self._chosen: Counter[tuple[int, Reason]] = Counter()

    def choose(self, batch: Any) -> int:
        """Verify rows of this batch; 1 is plain decoding."""
        lens = host_lens(batch)
        self._choice = self._policy.choose(int(lens.max()), len(lens))
        return self._choice.rows

    def interrupted(self) -> None:
        """Other work, a prefill, runs before the next step."""
        self._clean = False

    def launched(self, walked: BatchedWalk) -> None:
        """After the step's walk is on its way."""
        if self._choice is None:
            raise RuntimeError("a step was launched without a chosen width")
        path = walked.path
        paths = torch.empty(path.shape, dtype=path.dtype, pin_memory=path.is_cuda)
        paths.copy_(path, non_blocking=True)
        self._pending.append(_Pending(self._choice, paths, self._clean))
        self._clean = True

    def finished(self) -> int:
        """When SGLang has the oldest step's result on the host. Returns that step's rows."""
        step, now = self._pending.popleft(), time.perf_counter()
        seconds, self._done_at = now - self._done_at, now
        widths = [width for width in self._policy.widths if width <= step.choice.rows]
        commits = commits_within(step.paths.tolist(), widths)
        self._policy.observe(step.choice, seconds if step.clean else None, commits)
        self._chosen[step.choice.rows, step.choice.reason] += len(step.paths)
        return step.choice.rows

    def take_chosen(self) -> Counter[tuple[int, Reason]]:
        """Rounds of all requests by width and reason since the last call."""
        chosen, self._chosen = self._chosen, Counter()
        return chosen
