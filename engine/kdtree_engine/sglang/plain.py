"""What SGLang counts of a step of plain decoding inside DDTREE: every step of a speculative algorithm as a
verify step. These are taken out again."""

from __future__ import annotations

from typing import Any

from kdtree_engine.sglang.registration import settled_options
from kdtree_engine.sglang.treemask import is_ddtree


def uncount(tokens: Any, _processor: Any, result: Any, batch: Any) -> Any:
    """After SchedulerBatchResultProcessor._resolve_spec_v2_tokens: a plain step is no verify step.

    It is counted in a field that travels with the request and that only ragged verification uses.
    """
    if is_ddtree(batch.spec_algorithm) and result.speculative_num_draft_tokens == 1:
        for req in batch.reqs:
            if not (req.is_retracted or req.finished()):
                req.spec_verify_ct -= 1
                req.spec_correct_drafts_histogram[0] -= 1
                req.spec_num_block_accept_tokens += 1
    return tokens


def report(_: None, manager: Any, meta_info: dict[str, Any], received: Any, index: int) -> None:
    """After TokenizerManager._calculate_spec_decoding_metrics: `spec_plain_steps` into meta_info."""
    options = settled_options(manager.server_args)
    if options is not None and options.auto:
        meta_info["spec_plain_steps"] = received.spec_num_block_accept_tokens[index]
