"""One forward of the block drafter and the tree of its best candidates, without a dense gather."""

from __future__ import annotations

from typing import Any

import torch

from kdtree_engine.batched import BatchedTree
from kdtree_engine.sglang import treeops
from kdtree_engine.sglang.compat import runtime as sgl
from kdtree_engine.sglang.window import Window


def propose(worker: Any, batch: Any, window: Window) -> tuple[BatchedTree, bool]:
    """Run the draft block after each request's prefix and build the trees.

    Step 1 of SGLang's DFlashWorkerV2.forward_batch_generation, with a tree in place of the argmax chain.
    The second value says whether the tree was built inside the drafter's graph.
    """
    ids, positions = window.block(worker.options.block_size)
    forward_batch = _forward_batch(worker, batch, window, ids, positions)
    with torch.inference_mode(), sgl.draft_tp_context(worker.draft_parallel_layout):
        drafted = worker.draft_model_runner.forward(forward_batch)
        if drafted.can_run_graph and worker.captured is not None:
            return worker.captured.tree(len(ids)), True
        hidden = drafted.logits_output.hidden_states
        return treeops.grow(worker.options, hidden, ids, worker.candidates), False


def top_candidates(hidden: torch.Tensor, lm_head: Any, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and ids of the best `width` tokens for each row of `hidden` [r, h]; both [r, width].

    With a vocabulary split over ranks each one sends its own best and its normaliser only.
    """
    shard = getattr(lm_head, "shard_indices", None)
    rows = lm_head.weight.shape[0] if shard is None else shard.num_org_elements
    weight = lm_head.weight[:rows]
    values, tokens, norm = treeops.best_tokens(torch.matmul(hidden.to(weight.dtype), weight.T), width)
    group = sgl.get_parallel().tp_group
    if shard is not None and group.world_size > 1:
        tokens = group.all_gather(tokens + shard.org_vocab_start_index, dim=-1)
        norm = group.all_gather(norm, dim=-1).logsumexp(-1, keepdim=True)
        values, order = group.all_gather(values, dim=-1).topk(width, dim=-1)
        tokens = tokens.gather(-1, order)
    return values - norm, tokens


def _embed(worker: Any, ids: torch.Tensor) -> torch.Tensor:
    if worker._full_embed_gpu is not None:
        embeds = torch.nn.functional.embedding(ids, worker._full_embed_gpu)
    else:
        target = worker.target_worker.model_runner.model
        embeds = sgl.unwrap_lora_layer(sgl.resolve_embedding_module(worker.draft_model, target))(ids)
    if worker._noise_embed_scale != 1.0:
        embeds = embeds * worker._noise_embed_scale
    return embeds.flatten(0, 1)


def _forward_batch(
    worker: Any, batch: Any, window: Window, ids: torch.Tensor, positions: torch.Tensor
) -> Any:
    bs, block = ids.shape
    embeds = _embed(worker, ids)
    translator = worker.draft_model_runner.kv_index_translator
    worker._ensure_draft_block_buffers(bs)
    lens, lens_cpu, plan = window.prefix_lens, worker._draft_seq_lens_cpu_buf[:bs], window.plan
    if worker.use_compact_draft_cache:
        lens = worker._compute_compact_draft_seq_lens(window.prefix_lens)
        worker._fill_compact_seq_lens_cpu_bound(
            batch_seq_lens_cpu=batch.seq_lens_cpu,
            nxt_kv_lens_cpu=batch.spec_info.nxt_kv_lens_cpu,
            out=lens_cpu,
        )
        worker._rebuild_compact_draft_cache(
            req_pool_indices=batch.req_pool_indices,
            prefix_lens=window.prefix_lens,
            draft_prefix_lens=lens,
            verify_out_cache_loc_2d=window.cache_loc.view(bs, -1)[:, :block].contiguous(),
            bs=bs,
            block_size=block,
        )
        plan = plan.reads_from(translator, seq_lens=lens, seq_lens_cpu=lens_cpu, read_extent=block)
    else:
        lens_cpu.copy_(window.host_lens_with(batch, block))
    forward_batch = sgl.ForwardBatch(
        forward_mode=sgl.ForwardMode.TARGET_VERIFY,
        batch_size=bs,
        input_ids=ids.flatten(),
        req_pool_indices=batch.req_pool_indices,
        seq_lens=lens,
        out_cache_loc=window.cache_loc,
        seq_lens_sum=int(lens_cpu.sum()),
        seq_lens_cpu=lens_cpu,
        positions=positions,
        input_embeds=embeds,
        spec_algorithm=sgl.SpeculativeAlgorithm.DFLASH,
        spec_info=worker._draft_block_spec_info,
        capture_hidden_mode=sgl.CaptureHiddenMode.NULL,
        global_num_token_non_padded_cpu=bs * block,
        can_run_decode_cuda_graph=batch.can_run_decode_cuda_graph,
    )
    plan.bind(forward_batch, translator, cols=slice(0, block))
    return forward_batch
