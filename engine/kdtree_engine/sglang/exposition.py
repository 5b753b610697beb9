"""DDTREE's counters on SGLang's /metrics.

SGLang runs prometheus_client in multi-process mode (srt/utils/common.py, set_prometheus_multiproc_dir):
what a scheduler process counts appears on the HTTP side by itself. Import this module in a scheduler
process only, after SGLang has set that mode up.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

from kdtree_engine.metrics import Totals
from kdtree_engine.options import Options
from kdtree_engine.policy import Reason


class Exposition:
    """Publishes windows of steps; every name starts with `kdtree_`."""

    def __init__(self, options: Options) -> None:
        self._block = options.block_size
        self._commit = Histogram(
            "kdtree_commit_length",
            "Tokens committed by a request in one step",
            buckets=[float(length) for length in range(1, options.block_size + 1)],
        )
        self._steps = Counter("kdtree_steps", "Draft and verify rounds, one for each request of a batch")
        self._nodes = Counter("kdtree_nodes", "Verified tree rows, root included")
        self._positions = Counter(
            "kdtree_accepted_at", "Steps that accepted a draft at this position", ["position"]
        )
        self._ranks = Counter(
            "kdtree_accepted_rank",
            "Accepted drafts by the drafter's rank of them; 0 is its best candidate",
            ["rank"],
        )
        self._broken = Counter("kdtree_broken_steps", "Steps that broke an invariant")
        self._fallbacks = Counter("kdtree_fallback_steps", "Steps that committed one token only", ["reason"])
        self._choices = Counter(
            "kdtree_budget_choice",
            "Rounds by their verify rows and why; 1 is plain decoding",
            ["budget", "reason"],
        )
        self._budget = Gauge(
            "kdtree_budget", "Verify rows of a request, root included", multiprocess_mode="mostrecent"
        )
        self._budget.set(options.budget)

    def add(self, window: Totals) -> None:
        self._steps.inc(window.steps)
        self._nodes.inc(window.nodes)
        self._broken.inc(window.broken)
        for accepted, count in enumerate(window.histogram):
            for _ in range(count):
                self._commit.observe(accepted + 1)
        for position in range(1, self._block):
            self._positions.labels(str(position)).inc(sum(window.histogram[position:]))
        for rank, count in enumerate(window.ranks):
            self._ranks.labels(str(rank)).inc(count)

    def add_choices(self, chosen: Mapping[tuple[int, Reason], int], rows: int) -> None:
        """chosen: rounds by width and reason; rows: the width of the last batch."""
        self._budget.set(rows)
        for (budget, reason), rounds in chosen.items():
            self._choices.labels(str(budget), reason).inc(rounds)

    def add_fallbacks(self, reason: str, steps: int) -> None:
        self._fallbacks.labels(reason).inc(steps)
