"""The counters on /metrics."""

from __future__ import annotations

from kdtree_engine.metrics import Totals
from kdtree_engine.options import Options
from kdtree_engine.policy import Reason


def test_a_window_appears_in_every_counter() -> None:
    from kdtree_engine.sglang.exposition import Exposition
    from prometheus_client import REGISTRY

    shown = Exposition(Options(block_size=4, budget=9, topk_cap=2, keep_spine=False))
    window = Totals(
        steps=4, nodes=36, accepted=4, committed=8, depth=4, broken=1, histogram=(1, 2, 1, 0), ranks=(3, 1)
    )
    shown.add(window)
    shown.add_fallbacks("penalties", 2)
    shown.add_choices({(1, Reason.FASTEST): 3, (9, Reason.PROBE): 1}, 1)

    def value(name: str, **labels: str) -> float | None:
        return REGISTRY.get_sample_value(name, labels)

    assert (value("kdtree_steps_total"), value("kdtree_nodes_total")) == (4, 36)
    assert (value("kdtree_broken_steps_total"), value("kdtree_budget")) == (1, 1)
    assert (value("kdtree_commit_length_sum"), value("kdtree_commit_length_count")) == (8, 4)
    assert value("kdtree_commit_length_bucket", le="2.0") == 3
    assert [value("kdtree_accepted_at_total", position=str(at)) for at in (1, 2, 3)] == [3, 1, 0]
    assert [value("kdtree_accepted_rank_total", rank=str(at)) for at in (0, 1)] == [3, 1]
    assert value("kdtree_budget_choice_total", budget="1", reason="fastest") == 3
    assert value("kdtree_fallback_steps_total", reason="penalties") == 2
