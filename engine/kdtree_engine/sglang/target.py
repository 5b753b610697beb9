"""The target's forward of a step: a verify pass over all nodes of the trees, or one row of plain decoding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from kdtree_engine.batched import BatchedTree
from kdtree_engine.sglang.compat import runtime as sgl
from kdtree_engine.sglang.treemask import eager_mask, full_mask
from kdtree_engine.sglang.window import Window


def run_target(
    worker: Any, batch: Any, tree: BatchedTree, window: Window, positions: torch.Tensor, *, in_graph: bool
) -> tuple[Any, bool]:
    """SGLang's result, and whether a graph ran.

    positions: [b * N]. in_graph: the tree already lies in the static tensors of the target's graph. A tree of
    one node is plain decoding, with SGLang's decode attention.
    """
    if tree.size == 1:
        forward_batch, replays = _decode(worker, batch, window)
    else:
        forward_batch, replays = _verify(worker, batch, tree, window, positions)
        if replays and not in_graph:
            worker.captured.store_tree(tree)
    output = worker.target_worker.forward_batch_generation(
        batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
    )
    return output, replays


def _verify(
    worker: Any, batch: Any, tree: BatchedTree, window: Window, positions: torch.Tensor
) -> tuple[Any, bool]:
    prefix_lens = window.prefix_lens
    on_cpu = prefix_lens.device.type == "cpu"
    inputs = sgl.DFlashVerifyInput(
        draft_token=tree.tokens.flatten(),
        positions=positions,
        draft_token_num=tree.size,
        topk=2,  # more than 1 tells the attention backends that the mask is a tree's
        custom_mask=(
            full_mask(tree.ancestors, prefix_lens, int(prefix_lens.sum()))
            if on_cpu
            else torch.empty(0, dtype=torch.uint8, device=prefix_lens.device)
        ),
        capture_hidden_mode=sgl.CaptureHiddenMode.FULL,
        kv_loc_plan=window.plan,
    )
    with _lengths_of(batch, window, tree.size):
        forward_batch, replays = inputs.prepare_for_verify(batch, worker.target_worker)
    if not replays and not on_cpu:
        inputs.custom_mask = eager_mask(prefix_lens, int(window.host_lens.sum()), tree.ancestors)
    return forward_batch, replays


def _decode(worker: Any, batch: Any, window: Window) -> tuple[Any, bool]:
    runner = worker.model_runner
    batch.input_ids, batch.spec_info = window.ids.flatten(), None
    batch.forward_mode = sgl.ForwardMode.DECODE
    with _lengths_of(batch, window, 1):
        batch.seq_lens = window.prefix_lens + 1
        forward_batch = sgl.ForwardBatch.init_new(
            batch,
            runner,
            capture_hidden_mode=sgl.CaptureHiddenMode.FULL,
            return_hidden_states_before_norm=False,
            kv_loc_plan=window.plan,
        )
    graphs = runner.decode_cuda_graph_runner
    replays = bool(graphs and graphs.can_run_graph(forward_batch))
    if replays:
        graphs.load_batch(forward_batch)
    else:
        runner.attn_backend.init_forward_metadata(forward_batch)
    return forward_batch, replays


@contextlib.contextmanager
def _lengths_of(batch: Any, window: Window, rows: int) -> Iterator[None]:
    """Inside, SGLang sees the batch with the window's places and lengths; the lengths are put back."""
    kept = batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum
    batch.out_cache_loc = window.cache_loc
    batch.seq_lens_cpu = window.host_lens_with(batch, rows)
    batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
    try:
        yield
    finally:
        batch.seq_lens, batch.seq_lens_cpu, batch.seq_lens_sum = kept
