"""The target's side of a step: one forward over all nodes, its choices, the commit of the accepted path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kdtree_engine import batched
from kdtree_engine.batched import BatchedTree, BatchedWalk
from kdtree_engine.sglang import penalties, sampling, treeops
from kdtree_engine.sglang.compat import runtime as sgl
from kdtree_engine.sglang.treemask import attach_eager, full_mask


@dataclass(frozen=True)
class Verified:
    """choice: [b, N], the target's token after each node. walked, records: the step's outcome and its counts.

    output: SGLang's result. plan: KV places.
    """

    choice: torch.Tensor
    walked: BatchedWalk
    records: torch.Tensor
    output: Any
    plan: Any


def verify(
    worker: Any,
    batch: Any,
    tree: BatchedTree,
    prefix_lens: torch.Tensor,
    grammar_barrier: Any,
    *,
    in_graph: bool,
) -> Verified:
    """Run the target over every node and walk: step 2 of DFlashWorkerV2.forward_batch_generation, with a
    tree mask.

    in_graph: the tree already lies in the static tensors of the target's graph.
    """
    bs, size = tree.tokens.shape
    positions = (prefix_lens.to(torch.int64)[:, None] + tree.depth).flatten()
    grammar = (  # on its way to the host before the target starts
        sgl.GrammarTree.from_device(tree.next_token(), tree.next_sibling(), tree.tokens)
        if batch.has_grammar
        else None
    )
    output, plan, replayed = _run_target(worker, batch, tree, prefix_lens, positions, in_graph=in_graph)
    if replayed and not sampling.adjusts(worker, batch):
        choice, walked, records = worker.captured.result(bs)
        return Verified(choice, walked, records, output, plan)

    logits = output.logits_output.next_token_logits
    sampling.adjust(logits, batch.sampling_info, size)
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
    choice = sampling.choose(logits, batch.sampling_info, positions, size).view(bs, size)
    greedy = batch.sampling_info is None or batch.sampling_info.is_all_greedy
    site = sgl.SpecTpSyncSite.DFLASH_ACCEPT_GREEDY if greedy else sgl.SpecTpSyncSite.DFLASH_ACCEPT_SAMPLE
    choice = worker._tp_sync.sync(site, choice)
    if sgl.SIMULATE_ACC_LEN > 0:
        wanted = sgl.sample_simulated_acc_len(
            sgl.SIMULATE_ACC_LEN, sgl.SIMULATE_ACC_METHOD, worker.options.block_size
        )
        walked = batched.forced_walk(tree, choice, worker.options.depths, wanted)
    else:
        walked = treeops.walk(worker.options, tree, choice)
    penalised = penalties.penalised(batch)
    if any(penalised):
        worker.fell_back("penalties", sum(penalised))
        walked = walked.stopped_at_root(torch.tensor(penalised, device=choice.device))
    return Verified(choice, walked, worker.counts.records(tree, walked), output, plan)


def _run_target(
    worker: Any,
    batch: Any,
    tree: BatchedTree,
    prefix_lens: torch.Tensor,
    positions: torch.Tensor,
    *,
    in_graph: bool,
) -> tuple[Any, Any, bool]:
    """One target forward over all nodes: its result, the plan of its KV places, whether a graph ran."""
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
    on_cpu = prefix_lens.device.type == "cpu"
    inputs = sgl.DFlashVerifyInput(
        draft_token=tree.tokens.flatten(),
        positions=positions,
        draft_token_num=size,
        topk=2,  # more than 1 tells the attention backends that the mask is a tree's
        custom_mask=(
            full_mask(tree.ancestors, prefix_lens, int(prefix_lens.sum()))
            if on_cpu
            else torch.empty(0, dtype=torch.uint8, device=prefix_lens.device)
        ),
        capture_hidden_mode=sgl.CaptureHiddenMode.FULL,
        kv_loc_plan=plan,
    )
    kept = batch.seq_lens_cpu, batch.seq_lens_sum
    batch.seq_lens_cpu = host_lens + size if batch.seq_lens_cpu is not None else host_lens
    batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
    forward_batch, replays = inputs.prepare_for_verify(batch, worker.target_worker)
    batch.seq_lens_cpu, batch.seq_lens_sum = kept
    if replays and not in_graph:
        worker.captured.store_tree(tree)
    elif not replays and not on_cpu:
        attach_eager(worker.model_runner.attn_backend, prefix_lens, int(host_lens.sum()), tree.ancestors)
    output = worker.target_worker.forward_batch_generation(
        batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
    )
    return output, plan, replays


def commit(worker: Any, batch: Any, verified: Verified, prefix_lens: torch.Tensor) -> None:
    """Move the accepted path's target KV to the front of each window and write its hidden states into the
    draft KV.
    """
    walked = verified.walked
    bs, size = verified.choice.shape
    output = verified.output.logits_output
    window = torch.arange(bs, device=walked.path.device)[:, None] * size
    rows = torch.where(walked.path < 0, -1, walked.path + window)
    if batch.return_logprob:
        sgl.compute_spec_logprobs(batch, output, verified.choice.flatten(), accept_index=rows)
    if not worker.options.is_chain:  # a chain's accepted path already is the front of its window
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
