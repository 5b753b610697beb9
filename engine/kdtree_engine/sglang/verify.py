"""The target's side of a step: its forward, its choices, the walk, the commit of the accepted path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kdtree_engine import batched
from kdtree_engine.batched import BatchedTree, BatchedWalk
from kdtree_engine.sglang import penalties, sampling, treeops
from kdtree_engine.sglang.compat import runtime as sgl
from kdtree_engine.sglang.outcome import Outcome, settle
from kdtree_engine.sglang.target import run_target
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
    worker: Any, batch: Any, tree: BatchedTree, window: Window, grammar_barrier: Any, *, in_graph: bool
) -> Verified:
    """Run the target over every node and walk: step 2 of DFlashWorkerV2.forward_batch_generation, with a
    tree mask.

    in_graph: the tree already lies in the static tensors of the target's graph.
    """
    bs, size = tree.tokens.shape
    drafted = size > 1
    positions = (window.prefix_lens[:, None] + tree.depth).flatten()
    grammar = (  # on its way to the host before the target starts
        sgl.GrammarTree.from_device(tree.next_token(), tree.next_sibling(), tree.tokens)
        if batch.has_grammar
        else None
    )
    output, replayed = run_target(worker, batch, tree, window, positions, in_graph=in_graph)
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
    outcome = settle(walked, window.prefix_lens, window.cache_loc, hidden, size)
    return Verified(choice, walked, worker.counts.records(tree, walked), outcome, output)


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
