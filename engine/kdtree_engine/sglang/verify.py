"""The target's side of a step: one forward over all nodes, its choices, the commit of the accepted path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kdtree_engine.batched import BatchedTree, BatchedWalk
from kdtree_engine.sglang.compat import runtime as sgl


@dataclass(frozen=True)
class Verified:
    """choice: [b, N], the target's token after each node. output: SGLang's result. plan: KV places."""

    choice: torch.Tensor
    output: Any
    plan: Any


def full_mask(ancestors: torch.Tensor, prefix_lens: torch.Tensor, prefix_sum: int) -> torch.Tensor:
    """SGLang's flat verify mask (TreeMaskMode.FULL_MASK): per request N rows of prefix + N columns.

    True where a row may attend. ancestors: [b, N, N] bool; prefix_lens: [b]; prefix_sum: their sum, an int.
    """
    batch, size, _ = ancestors.shape
    device = ancestors.device
    widths = (prefix_lens + size).repeat_interleave(size)
    row = torch.repeat_interleave(
        torch.arange(batch * size, device=device), widths, output_size=size * (prefix_sum + size * batch)
    )
    start = (widths.cumsum(0) - widths + prefix_lens.repeat_interleave(size))[row]
    column = torch.arange(len(row), device=device) - start
    return (column < 0) | ancestors.flatten(0, 1)[row, column.clamp(min=0)]


def verify(
    worker: Any, batch: Any, tree: BatchedTree, prefix_lens: torch.Tensor, grammar_barrier: Any
) -> Verified:
    """Run the target over every node: step 2 of DFlashWorkerV2.forward_batch_generation, with a tree mask."""
    bs, size = tree.tokens.shape
    host_lens = batch.seq_lens_cpu if batch.seq_lens_cpu is not None else batch.spec_info.nxt_kv_lens_cpu
    batch.out_cache_loc = sgl.assign_extend_cache_locs_func(
        req_pool_indices=batch.req_pool_indices,
        req_to_token=worker.model_runner.req_to_token_pool.req_to_token,
        start_offset=prefix_lens,
        end_offset=prefix_lens + size,
        batch_size=bs,
        draft_token_num=size,
        device=worker.device,
    )
    plan = worker.model_runner.kv_index_translator.plan(
        req_pool_indices=batch.req_pool_indices,
        seq_lens=prefix_lens,
        seq_lens_cpu=host_lens,
        write_virtual=batch.out_cache_loc,
        read_extent=size,
    )
    prefix_sum = int((batch.seq_lens_cpu if batch.seq_lens_cpu is not None else prefix_lens).sum())
    positions = (prefix_lens.to(torch.int64)[:, None] + tree.depth).flatten()
    inputs = sgl.DFlashVerifyInput(
        draft_token=tree.tokens.flatten(),
        positions=positions,
        draft_token_num=size,
        topk=2,  # more than 1 tells the attention backends that the mask is a tree's
        custom_mask=full_mask(tree.ancestors, prefix_lens, prefix_sum),
        capture_hidden_mode=sgl.CaptureHiddenMode.FULL,
        kv_loc_plan=plan,
    )
    grammar = (
        sgl.GrammarTree.from_device(tree.next_token(), tree.next_sibling(), tree.tokens)
        if batch.has_grammar
        else None
    )

    kept = batch.seq_lens_cpu, batch.seq_lens_sum
    batch.seq_lens_cpu = host_lens + size if batch.seq_lens_cpu is not None else host_lens
    batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
    forward_batch, _ = inputs.prepare_for_verify(batch, worker.target_worker)
    batch.seq_lens_cpu, batch.seq_lens_sum = kept
    output = worker.target_worker.forward_batch_generation(
        batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
    )

    logits = output.logits_output.next_token_logits
    sgl.apply_dflash_verify_logits_adjustments(
        next_token_logits=logits, sampling_info=batch.sampling_info, draft_token_num=size
    )
    if grammar is not None:
        mask = sgl.build_grammar_vocab_mask(
            reqs=batch.reqs,
            tree=grammar,
            sampling_info=batch.sampling_info,
            device=logits.device,
            barrier=grammar_barrier,
        )
        if mask is not None:
            mask.apply(logits)
    choice = choose(logits, batch.sampling_info, positions, size).view(bs, size)
    greedy = batch.sampling_info is None or batch.sampling_info.is_all_greedy
    site = sgl.SpecTpSyncSite.DFLASH_ACCEPT_GREEDY if greedy else sgl.SpecTpSyncSite.DFLASH_ACCEPT_SAMPLE
    return Verified(choice=worker._tp_sync.sync(site, choice), output=output, plan=plan)


def choose(logits: torch.Tensor, sampling: Any, positions: torch.Tensor, size: int) -> torch.Tensor:
    """The target's token after each node, [b * N] int64: argmax, or one independent draw per node.

    Temperature, top-k, top-p and min-p act at every node through the function SGLang samples ordinary
    decoding with (layers/sampler.py), so a sampled request keeps the target's distribution on every device.
    """
    if sampling is None or sampling.is_all_greedy:
        return logits.argmax(-1)
    per_node = {
        name: getattr(sampling, name).repeat_interleave(size, 0)
        for name in ("temperatures", "top_ks", "top_ps", "min_ps")
    }
    seed = sampling.sampling_seed
    return sgl.top_k_top_p_min_p_sampling_from_probs_torch(
        torch.softmax(logits / per_node["temperatures"], -1),
        per_node["top_ks"],
        per_node["top_ps"],
        per_node["min_ps"],
        sampling.need_min_p_sampling,
        None if seed is None else seed.repeat_interleave(size, 0),
        positions,
    ).to(torch.int64)


def commit(
    worker: Any, batch: Any, verified: Verified, walked: BatchedWalk, prefix_lens: torch.Tensor
) -> None:
    """Move the accepted path's target KV to the front of each window and write its hidden states into the
    draft KV.
    """
    bs, size = verified.choice.shape
    output = verified.output.logits_output
    window = torch.arange(bs, device=walked.path.device)[:, None] * size
    rows = torch.where(walked.path < 0, -1, walked.path + window)
    if batch.return_logprob:
        sgl.compute_spec_logprobs(batch, output, verified.choice.flatten(), accept_index=rows)
    sgl.move_accept_tokens_to_target_kvcache(
        batch,
        rows.to(torch.int32),
        (walked.lengths - 1).to(torch.int32),
        worker.model_runner.token_to_kv_pool_allocator,
    )
    length = walked.path.shape[1]
    hidden = output.hidden_states.view(bs * size, -1)[rows.clamp(min=0).flatten()]
    cache_loc = worker._draft_write_ids(verified.plan).view(bs, size)[:, :length].contiguous()
    offsets = torch.arange(length, device=walked.path.device)
    worker._append_target_hidden_to_draft_kv_by_loc(
        target_hidden=hidden,
        cache_loc=cache_loc.flatten(),
        cache_loc_2d=cache_loc,
        positions=(prefix_lens.to(torch.int64)[:, None] + offsets).flatten(),
        commit_lens=walked.lengths.to(torch.int32),
    )
    output.hidden_states = None
