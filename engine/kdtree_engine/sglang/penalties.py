"""Which requests have penalties, and what SGLang forgets to count for them."""

from __future__ import annotations

from typing import Any

from kdtree_engine.sglang.treemask import is_ddtree


def penalised(batch: Any) -> list[bool]:
    """Which requests have penalties; these commit one token a step, as in plain decoding."""
    info = batch.sampling_info
    if info is None or info.acc_additive_penalties is None:
        return [False] * len(batch.reqs)
    return [
        bool(
            params.frequency_penalty
            or params.presence_penalty
            or params.repetition_penalty != 1.0
            or params.min_new_tokens
        )
        for params in (req.sampling_params for req in batch.reqs)
    ]


def count_last_token(_draft_input: Any, batch: Any, *_: Any, **__: Any) -> None:
    """Before DFlashDraftInputV2.prepare_for_decode, which leaves out what plain decoding and EAGLE do
    here.
    """
    info = batch.sampling_info
    if is_ddtree(batch.spec_algorithm) and info is not None and info.penalizer_orchestrator.is_required:
        batch.cumulate_penalty_output_tokens()
