"""What the kernels must compute, written plainly in float64."""

from __future__ import annotations

import torch

from kdtree_engine.attention.tensors import PagedCache, Tree


def reference_attention(
    query: torch.Tensor,
    row_start: torch.Tensor,
    cache: PagedCache,
    tree: Tree | None,
    tree_mask: torch.Tensor | None,
    value_dim: int,
    softmax_scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output [rows, query_heads, value_dim] and natural-log LSE [rows, query_heads], float64.

    `tree_mask` is the unpacked mask, bool [rows, max rows of a request]; None is a chain.
    """
    rows, heads = query.shape[:2]
    out = torch.zeros(rows, heads, value_dim, dtype=torch.float64)
    lse = torch.full((rows, heads), -torch.inf, dtype=torch.float64)
    table = cache.table.flatten()
    for b in range(len(cache.lengths)):
        first, last = int(row_start[b]), int(row_start[b + 1])
        token = torch.arange(int(cache.lengths[b]))
        page = table[int(cache.table_start[b]) + token // cache.page_size].long()
        slot = page * cache.page_size + token % cache.page_size
        keys = cache.keys[slot].double() * cache.scale
        values = keys[..., :value_dim] if cache.values is None else cache.values[slot].double() * cache.scale
        seen = torch.ones(last - first, len(token), dtype=torch.bool)
        if tree is not None:
            keys = torch.cat([keys, tree.keys[first:last].double()])
            own = tree.keys[..., :value_dim] if tree.values is None else tree.values
            values = torch.cat([values, own[first:last].double()])
            size = last - first
            inside = torch.ones(size, size, dtype=torch.bool).tril()
            seen = torch.cat([seen, inside if tree_mask is None else tree_mask[first:last, :size]], 1)
        group = heads // cache.keys.shape[1]
        logits = torch.einsum("rhd,thd->rht", query[first:last].double(), keys.repeat_interleave(group, 1))
        logits = (logits * softmax_scale).masked_fill(~seen[:, None], -torch.inf)
        lse[first:last] = logits.logsumexp(-1)
        weights = (logits - lse[first:last, :, None]).exp().nan_to_num(0.0)
        out[first:last] = torch.einsum("rht,thd->rhd", weights, values.repeat_interleave(group, 1))
    return out, lse
