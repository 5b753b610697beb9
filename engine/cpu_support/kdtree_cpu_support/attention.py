"""The target-verify pass that SGLang's torch_native attention lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def verify_attention(
    original: Callable[..., torch.Tensor],
    self: Any,
    q: torch.Tensor,
    k: torch.Tensor | None,
    v: torch.Tensor | None,
    layer: Any,
    batch: Any,
    save_kv_cache: bool = True,
    **_: Any,
) -> torch.Tensor:
    """Attend n draft rows per request to its prefix and to each other; any other pass goes to `original`.

    q [requests * n, heads * dim] -> [requests * n, heads * value dim]. Rows see each other through the
    speculative input's flat custom mask (per request n * (prefix + n) booleans, rows first) or, without one,
    as a causal chain.
    """
    if not batch.forward_mode.is_target_verify():
        return original(self, q, k, v, layer, batch, save_kv_cache)
    from sglang.srt.layers.radix_attention import AttentionType
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc

    pool = self.token_to_kv_pool
    if save_kv_cache and k is not None:
        pool.set_kv_buffer(layer, KVWriteLoc(batch.out_cache_loc, self.swa_out_cache_loc), k, v)
    rows = batch.spec_info.draft_token_num
    heads = layer.tp_q_head_num
    queries = q.view(-1, heads, layer.qk_head_dim)
    output = q.new_empty((queries.shape[0], heads, layer.v_head_dim))
    keys, values = pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)
    causal = layer.attn_type != AttentionType.ENCODER_ONLY and not layer.is_cross_attention
    custom = batch.spec_info.custom_mask
    offset = 0
    for i in range(batch.batch_size):
        prefix = int(batch.seq_lens[i])
        width = prefix + rows
        slots = self.req_to_token_pool.req_to_token[batch.req_pool_indices[i], :width].long()
        mask = torch.ones(rows, width, dtype=torch.bool)
        if custom is not None and custom.numel():
            mask = custom[offset : offset + rows * width].view(rows, width).bool()
            offset += rows * width
        elif causal:
            mask[:, prefix:] = torch.tril(torch.ones(rows, rows, dtype=torch.bool))
        key = keys[slots].transpose(0, 1).to(q.dtype)
        value = values[slots].transpose(0, 1).to(q.dtype)
        mine = slice(i * rows, (i + 1) * rows)
        output[mine] = F.scaled_dot_product_attention(
            queries[mine].transpose(0, 1)[None],
            key[None],
            value[None],
            attn_mask=mask[None, None],
            scale=layer.scaling,
            enable_gqa=heads != key.shape[0],
        )[0].transpose(0, 1)
    return output.view(-1, heads * layer.v_head_dim)
