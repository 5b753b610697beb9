"""Cache-slot bookkeeping of speculative decoding. Shapes: R requests, P pool rows, L pool row length."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write the next end - start slots of out_cache_loc into each request's row of req_to_token [P, L]."""
    offset = 0
    for row, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=False):
        count = max(last - first, 0)
        slots = out_cache_loc[offset : offset + count]
        req_to_token[row, first : first + count] = slots.to(req_to_token.dtype)
        offset += count


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Read slots start..end of each request's row, one request after the other, into out_cache_loc."""
    offset = 0
    for row, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=False):
        count = max(last - first, 0)
        slots = req_to_token[row, first : first + count]
        out_cache_loc[offset : offset + count] = slots.to(out_cache_loc.dtype)
        offset += count


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_cols: int,
) -> None:
    """Read the topk * num_cols slots that follow each request's sequence into out_cache_loc."""
    count = topk * num_cols
    for i, (row, length) in enumerate(zip(req_pool_indices.tolist(), seq_lens.tolist(), strict=False)):
        slots = req_to_token[row, length : length + count]
        out_cache_loc[i * count : (i + 1) * count] = slots.to(out_cache_loc.dtype)


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, stride: int
) -> None:
    """Pick each request's last accepted token: accept_tokens [R, stride], accept_lens [R] -> bonus_tokens
    [R].
    """
    requests = accept_lens.numel()
    index = torch.arange(requests) * stride + accept_lens.long() - 1
    bonus_tokens[:requests] = accept_tokens.reshape(-1)[index].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """Gather the slots of accepted rows (index -1 = none), densely."""
    accepted = accept_index.reshape(-1)
    accepted = accepted[accepted != -1].long()
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted].to(accept_out_cache_loc.dtype)


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Copy cache rows src_loc to tgt_loc in every layer; buffers are raw addresses, strides bytes a row.

    All sources are read before any target is written: the two may overlap.
    """
    targets, sources = tgt_loc.tolist(), src_loc.tolist()
    for base, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=False):
        rows = [ctypes.string_at(base + stride * source, stride) for source in sources]
        for target, row in zip(targets, rows, strict=False):
            ctypes.memmove(base + stride * target, row, stride)
