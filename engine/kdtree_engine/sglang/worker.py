"""The DDTREE worker: SGLang's DFLASH worker with a tree between draft and verify."""

from __future__ import annotations

import functools
import logging
import os
from typing import Any

import torch

from kdtree_engine.batched import BatchedTree, root_only
from kdtree_engine.metrics import Totals
from kdtree_engine.options import RefusedError
from kdtree_engine.sglang import ranks
from kdtree_engine.sglang.budget import Budget
from kdtree_engine.sglang.captured import CapturedStep
from kdtree_engine.sglang.compat import captured_batch_sizes
from kdtree_engine.sglang.compat import runtime as sgl
from kdtree_engine.sglang.draft import propose, top_candidates
from kdtree_engine.sglang.exposition import Exposition
from kdtree_engine.sglang.registration import options_of
from kdtree_engine.sglang.stepcounts import StepCounts
from kdtree_engine.sglang.verify import commit, verify
from kdtree_engine.sglang.widths import WidthStates
from kdtree_engine.sglang.window import Window, open_window

log = logging.getLogger(__name__)


class DDTreeWorker(sgl.DFlashWorkerV2):  # type: ignore[misc]
    """Prefill, draft cache and idle handling are the base class's; a decode step is draft, tree, verify,
    walk, commit.
    """

    def __init__(self, server_args: Any, gpu_id: int, nccl_port: int, target_worker: Any) -> None:
        self.options = options_of(server_args)
        if sgl.SIMULATE_ACC_LEN > 0 and sgl.SIMULATE_ACC_TOKEN_MODE != "real-draft-token":
            raise RefusedError("DDTREE simulates with SGLANG_SIMULATE_ACC_TOKEN_MODE=real-draft-token only")
        with self._draft_width():
            super().__init__(server_args, gpu_id, nccl_port, target_worker)
        if self.selector is not None or self.lilicorr is not None or self._is_domino:
            raise RefusedError(
                "DDTREE takes a plain DFlash drafter, without a selector, LiLiCorr or Domino head"
            )
        self.speculative_num_draft_tokens = self.options.budget
        parallel = sgl.get_parallel()
        leads = parallel.tp_rank == 0
        self._exposition = Exposition(self.options) if leads and server_args.enable_metrics else None
        self.counts = StepCounts(self.options, self.device, leads=leads, publish=self._publish)
        self.tp_group = parallel.tp_group
        self.checks_ranks = ranks.wanted(os.environ, self.tp_group.world_size)
        self.captured: CapturedStep | None = None
        sizes = captured_batch_sizes()
        if sizes and not str(self.device).startswith("cpu"):
            self.captured = CapturedStep(self.options, self.counts, max(sizes), self.device)
            self.model_runner.capture_head_hooks.append(self.captured.target_head)
            self.model_runner.capture_tail_hooks.append(self.captured.target_tail)
        several = self.tp_group.world_size > 1
        exchange = functools.partial(ranks.first_ranks, self.tp_group) if several else None
        self.budget = Budget(self.options, exchange) if self.options.auto else None
        log.info("DDTREE ready: %s", self.options)

    def _publish(self, window: Totals, rows: int) -> None:
        if self._exposition is not None:
            self._exposition.add(window)
            if self.budget is not None:
                self._exposition.add_choices(self.budget.take_chosen(), rows)

    def fell_back(self, reason: str, steps: int) -> None:
        """Count request steps that committed one token although a tree was verified."""
        if self._exposition is not None:
            self._exposition.add_fallbacks(reason, steps)

    def candidates(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`top_candidates` under the target's head, with its tokens as the target counts them."""
        head = sgl.unwrap_lora_layer(self.target_worker.model_runner.model.lm_head)
        return top_candidates(hidden, head, self.options.topk_cap)

    def _draft_width(self) -> Any:
        """The draft runner's forwards are one block wide, the target's one tree."""
        return sgl.get_spec().override(speculative_num_draft_tokens=self.options.block_size)

    def _defer_target_verify_gather(self) -> None:
        """None: the walk reads logits of every node, so the target gathers a split vocabulary itself."""
        return

    def init_attention_backends(self) -> None:
        with self._draft_width():
            super().init_attention_backends()

    def init_cuda_graphs(self) -> None:
        with self._draft_width():
            super().init_cuda_graphs()
        self.widths = WidthStates(self.model_runner, self.options.auto)

    def _maybe_build_draft_sampler(self) -> Any:
        """What SGLang captures behind the drafter: not the best token of each position but the tree."""
        return self.captured.proposer(self.candidates) if self.captured is not None else None

    def _validate_phase1_sampling_support(self, batch: Any) -> None:
        """No warning that sampling falls back to greedy: here it never does."""

    def forward_batch_generation(
        self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None, pp_proxy_tensors: Any = None
    ) -> Any:
        mode = batch.forward_mode
        if mode.is_extend() or batch.is_extend_in_batch or mode.is_idle() or batch.spec_info is None:
            if self.budget is not None:
                self.budget.interrupted()
            return super().forward_batch_generation(batch, on_publish, grammar_barrier, pp_proxy_tensors)
        return self._step(batch, on_publish, grammar_barrier)

    def _step(self, batch: Any, on_publish: Any, grammar_barrier: Any) -> Any:
        prefix_lens = batch.seq_lens
        prefix_lens.record_stream(torch.get_device_module(self.device).current_stream())
        rows = self.options.budget if self.budget is None else self.budget.choose(batch)
        if self.checks_ranks:
            ranks.check_width(self.tp_group, rows, self.device)
        window = open_window(self, batch, prefix_lens, rows)
        tree, in_graph = self._trees(batch, window)
        with self.widths.of(rows):
            verified = verify(self, batch, tree, window, grammar_barrier, in_graph=in_graph)
        if self.checks_ranks:
            ranks.check(self.tp_group, tree, verified.walked)
        if rows > 1:
            self.counts.add(verified.records)
        if self.budget is not None:
            self.budget.launched(verified.walked)

        lengths, bonus, new_lens = verified.outcome.numbers
        new_seq_lens, accept_lens = new_lens.to(prefix_lens.dtype), lengths.to(torch.int32)
        if on_publish is not None:
            on_publish(new_seq_lens)
        commit(self, batch, window, verified, accept_lens)
        return sgl.GenerationBatchResult(
            logits_output=verified.output.logits_output,
            next_token_ids=verified.outcome.tokens.flatten(),
            accept_lens=accept_lens,
            can_run_cuda_graph=verified.output.can_run_cuda_graph,
            next_draft_input=self._make_next_draft_input_decode(
                bonus_tokens=bonus, new_seq_lens=new_seq_lens
            ),
            speculative_num_draft_tokens=rows,
            new_seq_lens=new_seq_lens,
            routed_experts_output=verified.output.routed_experts_output,
            indexer_topk_output=verified.output.indexer_topk_output,
        )

    def _trees(self, batch: Any, window: Window) -> tuple[BatchedTree, bool]:
        """This batch's trees, as many rows as the window's, and whether the drafter's graph built them."""
        rows = window.ids.shape[1]
        if rows == 1:
            return root_only(window.ids[:, 0]), False
        tree, in_graph = propose(self, batch, window)
        return tree.first(rows), in_graph

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], batch_size: int = 0) -> None:
        rows = self.options.budget if self.budget is None else self.budget.finished()
        if rows > 1:
            super().on_verify_complete_cpu(num_correct_drafts_per_req, batch_size=batch_size)
        self.counts.step_done(batch_size, rows)
