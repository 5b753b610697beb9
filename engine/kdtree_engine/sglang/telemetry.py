"""Hooks that write load phase, scheduler progress and verify counters to the launcher's page."""

from __future__ import annotations

from typing import Any

from kdtree_engine import page
from kdtree_engine.page import Phase
from kdtree_engine.sglang import compat

_page: page.Page | None = None


def loading_weights(*_: Any, **__: Any) -> None:
    """Before weights load: the leading rank of this server becomes the page's writer."""
    global _page
    if compat.leads():
        _page = page.attach()
    _enter(Phase.WEIGHTS)


def allocating_pools(*_: Any, **__: Any) -> None:
    _enter(Phase.KV_CACHE)


def capturing_graphs(*_: Any, **__: Any) -> None:
    _enter(Phase.GRAPHS)


def warming_up(*_: Any, **__: Any) -> None:
    """After graph capture: what is left is the HTTP side and the first generations."""
    _enter(Phase.WARM_UP)


def loop_turn(scheduler: Any, *_: Any, **__: Any) -> None:
    """Before each turn of the scheduler's loop, idle ones included."""
    if _page is not None:
        _page.turns += 1
        _page.running, _page.queued = compat.load(scheduler)


def forward_moves(*_: Any, **__: Any) -> None:
    """Before each batch and each eager attention layer: one long forward is progress, not a hang."""
    if _page is not None:
        _page.turns += 1


def verify_done(_worker: Any, num_correct_drafts_per_req: list[int], *_: Any, **__: Any) -> None:
    """Before BaseSpecWorker.on_verify_complete_cpu, which SGLang calls once per verify batch for every
    algorithm.
    """
    if _page is not None:
        _page.steps += len(num_correct_drafts_per_req)
        _page.accepted += sum(num_correct_drafts_per_req)


def _enter(phase: Phase) -> None:
    if _page is not None:
        _page.enter(phase)
