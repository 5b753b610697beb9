"""The target's side of a step: one forward over all nodes, its choices, the commit of the accepted path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kdtree_engine import batched
from kdtree_engine.batched import BatchedTree, BatchedWalk
from kdtree_engine.sglang import penalties, plain, sampling, treeops
from kdtree_engine.sglang.compat import runtime as sgl
from kdtree_engine.sglang.outcome import Outcome, settle
from kdtree_engine.sglang.treemask import eager_mask, full_mask
from kdtree_engine.sglang.window import Window


@dataclass(frozen=True)
class Verified:
    """choice: [b, N], the target's token after each node. walked, records: the step's walk and its counts.

    outcome: what is handed on. output: SGLang's result.
    """

    choice: torch.Tensor
    walked: BatchedWalk
    records: torch.Tensor
    outcome: Outcome
    output: Any


def verify(
    worker: Any,
    batch: Any,
    tree: BatchedTree,
    window: Window,
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
    drafted = size > 1
    positions = (prefix_lens[:, None] + tree.depth).flatten()
    grammar = (  # on its way to the host before the target starts
        sgl.GrammarTree.from_device(tree.next_token(), tree.next_sibling(), tree.tokens)
        if batch.has_grammar
        else None
    )
    output, replayed = (
        _run_target(worker, batch, tree, window, prefix_lens, positions, in_graph=in_graph)
        if drafted
        else plain.run_target(worker, batch, window, prefix_lens)
    )
    if replayed and not sampling.adjusts(worker, batch):
        choice, walked, records, outcome = worker.captured.result(bs, size)
        return Verified(choice, walked, records, outcome, output)

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
    if sgl.SIMULATE_ACC_LEN > 0 and drafted:
        wanted = sgl.sample_simulated_acc_len(
            sgl.SIMULATE_ACC_LEN, sgl.SIMULATE_ACC_METHOD, worker.options.block_size
        )
        walked = batched.forced_walk(tree, choice, worker.options.depths, wanted)
    else:
        walked = treeops.walk(worker.options, tree, choice)
    penalised = penalties.penalised(batch)
    if any(penalised) and drafted:
        worker.fell_back("penalties", sum(penalised))
        walked = walked.stopped_at_root(torch.tensor(penalised, device=choice.device))
    hidden = output.logits_output.hidden_states
    outcome = settle(walked, prefix_lens, window.cache_loc, hidden, size)
    return Verified(choice, walked, worker.counts.records(tree, walked), outcome, output)


def _run_target(
    worker: Any,
    batch: Any,
    tree: BatchedTree,
    window: Window,
    prefix_lens: torch.Tensor,
    positions: torch.Tensor,
    *,
    in_graph: bool,
) -> tuple[Any, bool]:
    """One target forward over all nodes: its result, and whether a graph ran."""
    size = tree.tokens.shape[1]
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
        kv_loc_plan=window.plan,
    )
    kept = batch.seq_lens_cpu, batch.seq_lens_sum
    batch.out_cache_loc = window.cache_loc
    batch.seq_lens_cpu = window.host_lens if batch.seq_lens_cpu is None else window.host_lens + size
    batch.seq_lens_sum = int(batch.seq_lens_cpu.sum())
    forward_batch, replays = inputs.prepare_for_verify(batch, worker.target_worker)
    batch.seq_lens_cpu, batch.seq_lens_sum = kept
    if replays and not in_graph:
        worker.captured.store_tree(tree)
    elif not replays and not on_cpu:
        bound = int(window.host_lens.sum())
        inputs.custom_mask = eager_mask(prefix_lens, bound, tree.ancestors)
    output = worker.target_worker.forward_batch_generation(
        batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
    )
    return output, replays


def commit(worker: Any, batch: Any, window: Window, verified: Verified, accept_lens: torch.Tensor) -> None:
    """Move the accepted path's target KV to the front of each window and write its hidden states into the
    draft KV.

    accept_lens: [b] int32 commit lengths.
    """
    outcome = verified.outcome
    bs, size = verified.choice.shape
    length = outcome.source.shape[1]
    output = verified.output.logits_output
    if batch.return_logprob:
        path = verified.walked.path
        first = torch.arange(bs, device=path.device)[:, None] * size
        rows = torch.where(path < 0, -1, path + first)
        sgl.compute_spec_logprobs(batch, output, verified.choice.flatten(), accept_index=rows)
    if not worker.options.is_chain and size > 1:  # a chain's path already is the front of its window
        pool = worker.model_runner.token_to_kv_pool_allocator.get_kvcache()
        pool.move_kv_cache(outcome.target.flatten(), outcome.source.flatten())
    cache_loc = worker._draft_write_ids(window.plan).view(bs, size)[:, :length].contiguous()
    worker._append_target_hidden_to_draft_kv_by_loc(
        target_hidden=outcome.hidden,
        cache_loc=cache_loc.flatten(),
        cache_loc_2d=cache_loc,
        positions=window.block(length)[1],
        commit_lens=accept_lens,
    )
    output.hidden_states = None
