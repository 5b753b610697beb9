"""Counts every step on the device, checks the invariants there, and reads the sums once per log interval."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import torch

from kdtree_engine.batched import BatchedTree, BatchedWalk
from kdtree_engine.metrics import StepRecord, Totals
from kdtree_engine.options import Options

log = logging.getLogger(__name__)

LOG_EVERY_STEPS = 40
WARN_EVERY_SECONDS = 60.0
_FIXED = 5  # accepted, committed, depth, nodes, broken; then rank hits, then the histogram of accepted drafts


class StepCounts:
    """Totals over all steps.

    A broken invariant is counted and logged with its evidence once a minute, never raised. publish: called
    with every window and the rows of its last step, in the process that leads.
    """

    def __init__(
        self,
        options: Options,
        device: Any,
        *,
        leads: bool,
        publish: Callable[[Totals, int], None] | None = None,
    ) -> None:
        self._options = options
        self._leads = leads
        self._publish = publish
        width = _FIXED + options.topk_cap + options.block_size
        self._sums = torch.zeros(width, dtype=torch.int64, device=device)
        self._evidence = torch.zeros(4, dtype=torch.int64, device=device)  # the last broken step's StepRecord
        self._logged = Totals()
        self._batches = 0
        self._warned_at = -WARN_EVERY_SECONDS

    def records(self, tree: BatchedTree, walked: BatchedWalk) -> torch.Tensor:
        """One row of counts per request, [b, _FIXED + K + block]; keeps the evidence of a broken one.

        accepted is counted on the path, not derived from lengths. Runs on the device alone and can be
        captured.
        """
        taken = walked.path[:, 1:] >= 0
        accepted = taken.sum(1)
        nodes = torch.full_like(accepted, tree.tokens.shape[1])
        broken = (walked.lengths != accepted + 1) | (walked.depth != accepted)
        step = torch.stack([accepted, walked.lengths, walked.depth, nodes], 1)
        worst = step.index_select(0, broken.to(torch.int8).argmax()[None])[0]
        self._evidence.copy_(torch.where(broken.any(), worst, self._evidence))
        ranks = tree.rank.gather(1, walked.path[:, 1:].clamp(min=0))
        hits = (taken[:, :, None] & (ranks[:, :, None] == self._range(self._options.topk_cap))).sum(1)
        histogram = (accepted[:, None] == self._range(self._options.block_size)).to(torch.int64)
        return torch.cat([step, broken[:, None].to(torch.int64), hits, histogram], 1)

    def add(self, records: torch.Tensor) -> None:
        """Add the rows of the requests that are really there."""
        self._sums += records.sum(0)

    def totals(self) -> Totals:
        """Sums so far (waits for the device)."""
        accepted, committed, depth, nodes, broken, *rest = self._sums.tolist()
        width = self._options.topk_cap
        return Totals(
            steps=sum(rest[width:]),
            nodes=nodes,
            accepted=accepted,
            committed=committed,
            depth=depth,
            broken=broken,
            ranks=tuple(rest[:width]),
            histogram=tuple(rest[width:]),
        )

    def step_done(self, batch_size: int, rows: int) -> None:
        """Called on the host after each batch; logs the window every LOG_EVERY_STEPS batches."""
        self._batches += 1
        if not self._leads or self._batches % LOG_EVERY_STEPS:
            return
        now = self.totals()
        window, self._logged = now - self._logged, now
        if window.steps:  # none when every batch of the window was decoded plainly
            log.info("%s", window.log_line(batch_size=batch_size, budget=self._options.budget))
        if self._publish is not None:
            self._publish(window, rows)
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

    def _range(self, size: int) -> torch.Tensor:
        return torch.arange(size, device=self._sums.device)
