"""The tensors of one call, named and checked."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kdtree_engine.attention.plan import Plan
from kdtree_engine.attention.shapes import AttentionShape, CacheType

CACHE_DTYPES = {
    CacheType.BF16: torch.bfloat16,
    CacheType.FP8_E4M3: torch.float8_e4m3fn,
    CacheType.FP32: torch.float32,
}


@dataclass(frozen=True)
class PagedCache:
    """One layer's KV pool and where each request's prefix lies in it.

    `keys` [slots, kv_heads, key_dim]; `values` [slots, kv_heads, value_dim], None for a shared latent.
    `table` (int32 or int64, any shape) holds page numbers: token t of request b is slot
    `table.flatten()[table_start[b] + t // page_size] * page_size + t % page_size`. So a page table
    [batch, pages] has starts `b * pages`, and SGLang's flat `kv_indices` has starts `kv_indptr[:-1]`.
    `table_start` and `lengths` are int32 or int64 [batch]; `scale` multiplies fp8 elements.
    """

    keys: torch.Tensor
    values: torch.Tensor | None
    table: torch.Tensor
    table_start: torch.Tensor
    lengths: torch.Tensor
    page_size: int = 1
    scale: float = 1.0


@dataclass(frozen=True)
class Tree:
    """The new rows' own keys and who may see them.

    `keys` [rows, kv_heads, key_dim], `values` likewise or None for a shared latent, in row order.
    `mask` int32 [rows, words] as `pack_mask` makes it, bit j of a row set when node j of the same
    request is the row's node or an ancestor; None means a chain: each row sees itself and all before it.
    """

    keys: torch.Tensor
    values: torch.Tensor | None
    mask: torch.Tensor | None = None


@dataclass(frozen=True)
class Workspace:
    """Partial results of the splits; shared by all layers, and by buckets that never run at once."""

    partial: torch.Tensor  # float32 [splits, rows, query_heads, value_dim]
    lse: torch.Tensor  # float32 [splits, rows, query_heads], base 2

    @staticmethod
    def elements(plan: Plan) -> int:
        """float32 elements that `plan` needs."""
        results = plan.splits * plan.batch * plan.rows * plan.shape.query_heads
        return results * (plan.shape.value_dim + 1)

    @classmethod
    def within(cls, plan: Plan, memory: torch.Tensor) -> Workspace:
        """A workspace in the front of `memory`, float32 [at least `elements(plan)`]."""
        shape = (plan.splits, plan.batch * plan.rows, plan.shape.query_heads)
        results, total = math.prod(shape), cls.elements(plan)
        values = plan.shape.value_dim
        return cls(
            memory[: results * values].view(*shape, values), memory[results * values : total].view(shape)
        )

    @classmethod
    def allocate(cls, plan: Plan, device: torch.device | str) -> Workspace:
        """A workspace of its own."""
        return cls.within(plan, torch.empty(cls.elements(plan), dtype=torch.float32, device=device))


def pack_mask(mask: torch.Tensor, words: int | None = None) -> torch.Tensor:
    """Pack bool [rows, columns] into int32 [rows, words], bit j % 32 of word j // 32 for column j.

    No host synchronisation, so it may run inside a captured region.
    """
    rows, columns = mask.shape
    words = words or -(-columns // 32)
    if words * 32 < columns:
        raise ValueError(f"{columns} columns do not fit {words} words of 32 bits")
    bits = torch.nn.functional.pad(mask.to(torch.int64), (0, words * 32 - columns)).view(rows, words, 32)
    # A sum in int64 and a wrapping cast give the sign bit its place.
    return (bits << torch.arange(32, device=mask.device)).sum(-1).to(torch.int32)


def check(
    plan: Plan,
    query: torch.Tensor,
    cache: PagedCache,
    tree: Tree | None,
    row_start: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """ValueError for any shape, type or stride that the kernels would misread. Reads no device memory."""
    shape, total = plan.shape, query.shape[0]
    cached, compute = CACHE_DTYPES[shape.cache], query_dtype(shape.cache)
    _expect("query", query, (total, shape.query_heads, shape.key_dim), compute)
    _expect("out", out, (total, shape.query_heads, shape.value_dim), compute)
    if not (query.is_contiguous() and out.is_contiguous() and cache.table.is_contiguous()):
        raise ValueError("query, out and table must be contiguous")
    if total > plan.batch * plan.rows:
        raise ValueError(f"{total} rows in a plan for {plan.batch} requests of {plan.rows}")
    if row_start.shape != (plan.batch + 1,):
        raise ValueError(f"row_start has shape {tuple(row_start.shape)}, the plan wants ({plan.batch + 1},)")
    _expect_kv("cache", cache.keys, cache.values, cache.keys.shape[0], shape, cached)
    for name, index in (("table_start", cache.table_start), ("lengths", cache.lengths)):
        if index.shape != (plan.batch,):
            raise ValueError(f"{name} has shape {tuple(index.shape)}, the plan wants ({plan.batch},)")
    if cache.page_size < 1 or cache.keys.shape[0] % cache.page_size:
        raise ValueError(f"{cache.keys.shape[0]} slots are not whole pages of {cache.page_size}")
    if tree is not None:
        _expect_kv("tree", tree.keys, tree.values, total, shape, compute)
        if tree.mask is not None and (tree.mask.dtype != torch.int32 or not tree.mask.is_contiguous()):
            raise ValueError("the tree mask must be contiguous int32")
        if tree.mask is not None and tree.mask.shape != (total, plan.mask_words):
            raise ValueError(f"tree mask {tuple(tree.mask.shape)}, expected ({total}, {plan.mask_words})")


def query_dtype(cache: CacheType) -> torch.dtype:
    """Type of queries, tree keys and output beside a cache of this type."""
    return torch.float32 if cache is CacheType.FP32 else torch.bfloat16


def _expect_kv(
    what: str,
    keys: torch.Tensor,
    values: torch.Tensor | None,
    rows: int,
    shape: AttentionShape,
    dtype: torch.dtype,
) -> None:
    if (values is None) != shape.shared_kv:
        raise ValueError(f"{what} values must be {'absent' if shape.shared_kv else 'given'} for this shape")
    _expect(f"{what} keys", keys, (rows, shape.kv_heads, shape.key_dim), dtype)
    if values is not None:
        _expect(f"{what} values", values, (rows, shape.kv_heads, shape.value_dim), dtype)


def _expect(what: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        raise ValueError(f"{what} is {tensor.dtype} {tuple(tensor.shape)}, expected {dtype} {shape}")
    if tensor.stride()[1:] != (shape[2], 1):
        raise ValueError(f"{what} has strides {tensor.stride()}: heads and elements must be packed")
