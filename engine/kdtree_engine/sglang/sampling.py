"""What the target chooses after each node of a tree: processors, penalties, biases, sampling."""

from __future__ import annotations

from typing import Any

import torch

from kdtree_engine.sglang.compat import runtime as sgl


def adjusts(worker: Any, batch: Any) -> bool:
    """Whether a path of this batch may differ from the walk along the argmax of the model's own logits."""
    info = batch.sampling_info
    if sgl.SIMULATE_ACC_LEN > 0 or (info is not None and info.acc_additive_penalties is not None):
        return True
    return not worker._can_skip_verify_logits(batch, info)


def adjust(logits: torch.Tensor, info: Any, size: int) -> None:
    """Custom processors, penalties and biases at every node, in place (SamplingBatchInfo.apply_logits_bias).

    logits: [b * N, V]. Penalties are those of the committed tokens, so they are right at the root only; a
    penalised request's path ends there. SGLang's helper for the DFLASH family looks for penalties under a
    name that 0.5.23 does not use, and so drops them.
    """
    if info is None:
        return
    if info.has_custom_logit_processor:
        sgl.apply_custom_logit_processor(logits, info, num_tokens_in_batch=size)
    rows = logits.view(-1, size, logits.shape[-1])
    if info.acc_additive_penalties is not None:
        rows += info.acc_additive_penalties[:, None].to(logits.dtype)
    if info.acc_scaling_penalties is not None:
        scale = info.acc_scaling_penalties[:, None].to(logits.dtype)
        rows.copy_(torch.where(rows < 0, rows * scale, rows / scale))
    if info.logit_bias is not None:
        rows += info.logit_bias[:, None].to(logits.dtype)


def choose(logits: torch.Tensor, info: Any, positions: torch.Tensor, size: int) -> torch.Tensor:
    """The target's token after each node, [b * N] int64: argmax, or one independent draw per node.

    Temperature, top-k, top-p and min-p act at every node through the function SGLang samples ordinary
    decoding with (layers/sampler.py), so a sampled request keeps the target's distribution on every device.
    """
    if info is None or info.is_all_greedy:
        return logits.argmax(-1)
    per_node = {
        name: getattr(info, name).repeat_interleave(size, 0)
        for name in ("temperatures", "top_ks", "top_ps", "min_ps")
    }
    seed = info.sampling_seed
    return sgl.top_k_top_p_min_p_sampling_from_probs_torch(
        torch.softmax(logits / per_node["temperatures"], -1),
        per_node["top_ks"],
        per_node["top_ps"],
        per_node["min_ps"],
        info.need_min_p_sampling,
        None if seed is None else seed.repeat_interleave(size, 0),
        positions,
    ).to(torch.int64)
