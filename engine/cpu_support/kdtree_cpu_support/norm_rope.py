"""Torch form of SGLang's Triton kernel that norms and rotates queries and keys in place."""

from __future__ import annotations

import torch


def table_qk_norm_rope(
    qkv: torch.Tensor,
    positions: torch.Tensor,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    num_q_heads: int,
    num_k_heads: int,
    head_dim: int,
    eps: float,
) -> None:
    """RMS-norm every query and key head, then rotate it (NeoX halves); values stay as they are.

    qkv [tokens, (q + k + v heads) * head_dim] is changed in place; positions [tokens]; weights [1 or heads,
    head_dim]; cos_sin_cache [positions, head_dim], cosines first. Source:
    sglang/kernels/ops/attention/table_qk_norm_rope.py, its rounding of the normed value to bf16 included.
    """
    tokens = qkv.shape[0]
    if tokens == 0:
        return
    heads, half = num_q_heads + num_k_heads, head_dim // 2
    x = qkv[:, : heads * head_dim].float().view(tokens, heads, head_dim)
    weight = torch.cat([q_weight.float().expand(num_q_heads, -1), k_weight.float().expand(num_k_heads, -1)])
    x = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight).to(torch.bfloat16).float()
    table = cos_sin_cache[positions].float()
    cos, sin = table[:, None, :half], table[:, None, half:]
    first, second = x[..., :half], x[..., half:]
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    qkv[:, : heads * head_dim] = rotated.to(qkv.dtype).view(tokens, -1)
