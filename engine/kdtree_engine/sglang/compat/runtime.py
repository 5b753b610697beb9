"""SGLang names that only a scheduler process needs; importing this module loads torch and SGLang's model
code.
"""

from __future__ import annotations

from sglang.srt.layers.logprob_processor import compute_spec_logprobs
from sglang.srt.layers.sampler import (
    apply_custom_logit_processor,
    top_k_top_p_min_p_sampling_from_probs_torch,
)
from sglang.srt.lora.layers import unwrap_lora_layer
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
from sglang.srt.runtime_context import get_parallel, get_spec
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.speculative.dflash_worker_v2 import (
    DFlashWorkerV2,
    _prepare_dflash_draft_block_unchecked,
    _resolve_dflash_embedding_module,
)
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.speculative.spec_tp_sync import SpecTpSyncSite
from sglang.srt.speculative.spec_utils import (
    SIMULATE_ACC_LEN,
    SIMULATE_ACC_METHOD,
    SIMULATE_ACC_TOKEN_MODE,
    GrammarTree,
    build_grammar_vocab_mask,
    draft_tp_context,
    sample_simulated_acc_len,
)

prepare_draft_block = _prepare_dflash_draft_block_unchecked
resolve_embedding_module = _resolve_dflash_embedding_module

__all__ = [
    "SIMULATE_ACC_LEN",
    "SIMULATE_ACC_METHOD",
    "SIMULATE_ACC_TOKEN_MODE",
    "CaptureHiddenMode",
    "DFlashVerifyInput",
    "DFlashWorkerV2",
    "DecodeCudaGraphRunner",
    "ForwardBatch",
    "ForwardMode",
    "GenerationBatchResult",
    "GrammarTree",
    "SpecTpSyncSite",
    "SpeculativeAlgorithm",
    "apply_custom_logit_processor",
    "build_grammar_vocab_mask",
    "compute_spec_logprobs",
    "draft_tp_context",
    "get_parallel",
    "get_spec",
    "prepare_draft_block",
    "resolve_embedding_module",
    "sample_simulated_acc_len",
    "top_k_top_p_min_p_sampling_from_probs_torch",
    "unwrap_lora_layer",
]
