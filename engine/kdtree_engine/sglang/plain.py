"""A step of plain decoding inside DDTREE: no draft, one row, SGLang's decode attention.

Its hidden states go into the draft KV like those of any committed token, so a draft may follow at once.
SGLang counts every step of a speculative algorithm as a verify step; these are taken out again."""

from __future__ import annotations

from typing import Any

import torch

from kdtree_engine.sglang.compat import runtime as sgl
from kdtree_engine.sglang.registration import settled_options
from kdtree_engine.sglang.treemask import is_ddtree
from kdtree_engine.sglang.window import Window


def run_target(worker: Any, batch: Any, window: Window, prefix_lens: torch.Tensor) -> tuple[Any, bool]:
    """One decode forward of a window of one row: its result, and whether a graph ran."""
    runner = worker.model_runner
    kept = batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum
    batch.input_ids, batch.spec_info = window.ids.flatten(), None
    batch.forward_mode = sgl.ForwardMode.DECODE
    batch.out_cache_loc = window.cache_loc
    batch.seq_lens = prefix_lens + 1
    batch.seq_lens_cpu = window.host_lens if batch.seq_lens_cpu is None else window.host_lens + 1
    batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
    forward_batch = sgl.ForwardBatch.init_new(
        batch,
        runner,
        capture_hidden_mode=sgl.CaptureHiddenMode.FULL,
        return_hidden_states_before_norm=False,
        kv_loc_plan=window.plan,
    )
    batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum = kept
    graphs = runner.decode_cuda_graph_runner
    replays = bool(graphs and graphs.can_run_graph(forward_batch))
    if replays:
        graphs.load_batch(forward_batch)
    else:
        runner.attn_backend.init_forward_metadata(forward_batch)
    output = worker.target_worker.forward_batch_generation(
        batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
    )
    return output, replays


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
