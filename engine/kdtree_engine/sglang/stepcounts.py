"""Counts every step on the device, checks the invariants there, and reads the sums once per log interval."""

from __future__ import annotations

import logging
import time
from typing import Any

import torch

from kdtree_engine.batched import BatchedTree, BatchedWalk
from kdtree_engine.metrics import StepRecord, Totals
from kdtree_engine.options import Options

log = logging.getLogger(__name__)

LOG_EVERY_STEPS = 40
WARN_EVERY_SECONDS = 60.0


class StepCounts:
    """Totals over all steps.

    A broken invariant is counted and logged with its evidence once a minute, never raised.
    """

    def __init__(self, options: Options, device: Any, *, leads: bool) -> None:
        self._options = options
        self._leads = leads
        self._sums = torch.zeros(6, dtype=torch.int64, device=device)
        self._histogram = torch.zeros(options.block_size, dtype=torch.int64, device=device)
        self._evidence = torch.zeros(4, dtype=torch.int64, device=device)  # the last broken step's StepRecord
        self._logged = Totals()
        self._batches = 0
        self._warned_at = -WARN_EVERY_SECONDS

    def add(self, tree: BatchedTree, walked: BatchedWalk) -> None:
        """Add one step of every request in the batch.

        accepted is counted on the path, not derived from lengths.
        """
        accepted = (walked.path[:, 1:] >= 0).sum(1)
        broken = (walked.lengths != accepted + 1) | (walked.depth != accepted)
        steps, nodes = tree.tokens.shape
        self._sums += torch.stack(
            [
                accepted.new_tensor(steps),
                accepted.new_tensor(steps * nodes),
                accepted.sum(),
                walked.lengths.sum(),
                walked.depth.sum(),
                broken.sum(),
            ]
        )
        self._histogram.scatter_add_(0, accepted, torch.ones_like(accepted))
        records = torch.stack([accepted, walked.lengths, walked.depth, torch.full_like(accepted, nodes)], 1)
        self._evidence = torch.where(broken.any(), records[broken.to(torch.int8).argmax()], self._evidence)

    def totals(self) -> Totals:
        """Sums so far (waits for the device)."""
        steps, nodes, accepted, committed, depth, broken = self._sums.tolist()
        return Totals(steps, nodes, accepted, committed, depth, broken, tuple(self._histogram.tolist()))

    def step_done(self, batch_size: int) -> None:
        """Called on the host after each batch; logs the window every LOG_EVERY_STEPS batches."""
        self._batches += 1
        if not self._leads or self._batches % LOG_EVERY_STEPS:
            return
        now = self.totals()
        window, self._logged = now - self._logged, now
        log.info("%s", window.log_line(batch_size=batch_size, budget=self._options.budget))
        problems = window.violations()
        if problems and time.monotonic() - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = time.monotonic()
            step = StepRecord(*self._evidence.tolist()) if window.broken else None
            log.error(
                "DDTREE invariant broken: %s; last such step: %s; window: %s",
                "; ".join(problems),
                step,
                window,
            )
