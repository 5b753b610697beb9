"""Random attention problems, small enough for the interpreter, with every unread byte poisoned."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from kdtree_engine.attention import AttentionShape, CacheType, PagedCache, Tree, pack_mask
from kdtree_engine.attention.tensors import CACHE_DTYPES, query_dtype

GPU = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Problem:
    shape: AttentionShape
    query: torch.Tensor
    row_start: torch.Tensor
    cache: PagedCache
    tree: Tree | None
    mask: torch.Tensor | None


def random_tree_mask(rows: list[int], generator: torch.Generator) -> torch.Tensor:
    """Ancestor masks of random trees: each node's parent is any earlier node of its request."""
    mask = torch.zeros(sum(rows), max(rows), dtype=torch.bool)
    first = 0
    for count in rows:
        for node in range(count):
            if node:
                parent = int(torch.randint(node, (1,), generator=generator))
                mask[first + node] = mask[first + parent]
            mask[first + node, node] = True
        first += count
    return mask


def make_problem(
    shape: AttentionShape,
    lengths: list[int],
    rows: list[int],
    page_size: int = 1,
    tree: str = "random",  # or "chain", "none"
    logit_scale: float = 1.0,
    seed: int = 0,
    max_rows: int | None = None,
    device: str = GPU,
) -> Problem:
    """Shuffled pages in a pool where every slot that no request owns holds NaN."""
    g = torch.Generator().manual_seed(seed)
    dtype, compute = CACHE_DTYPES[shape.cache], query_dtype(shape.cache)
    pages = [-(-n // page_size) for n in lengths]
    order = torch.randperm(sum(pages) + 3, generator=g)[3:]
    slots = (sum(pages) + 3) * page_size
    keys = torch.full((slots, shape.kv_heads, shape.key_dim), torch.nan)
    values = torch.full((slots, shape.kv_heads, shape.value_dim), torch.nan)
    start, first = [], 0
    for length, count in zip(lengths, pages, strict=True):
        start.append(first)
        token = torch.arange(length)
        slot = order[first + token // page_size] * page_size + token % page_size
        keys[slot] = torch.randn(length, *keys.shape[1:], generator=g)
        values[slot] = torch.randn(length, *values.shape[1:], generator=g)
        first += count
    total = sum(rows)
    query = torch.randn(total, shape.query_heads, shape.key_dim, generator=g) * logit_scale
    own = torch.randn(total, shape.kv_heads, shape.key_dim, generator=g)
    own_values = torch.randn(total, shape.kv_heads, shape.value_dim, generator=g)
    width = max_rows or max(rows)
    mask = random_tree_mask(rows, g) if tree == "random" else None
    part = None
    if tree != "none":
        packed = None if mask is None else pack_mask(mask, -(-width // 32)).to(device)
        part = Tree(
            own.to(compute).to(device),
            None if shape.shared_kv else own_values.to(compute).to(device),
            packed,
        )
    cache = PagedCache(
        keys.to(dtype).to(device),
        None if shape.shared_kv else values.to(dtype).to(device),
        order.to(torch.int32).to(device),
        torch.tensor(start, dtype=torch.int32, device=device),
        torch.tensor(lengths, dtype=torch.int32, device=device),
        page_size,
        0.5 if shape.cache is CacheType.FP8_E4M3 else 1.0,
    )
    row_start = torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()], dtype=torch.int32, device=device)
    return Problem(shape, query.to(compute).to(device), row_start, cache, part, mask)


def on_cpu(problem: Problem) -> Problem:
    """The same problem where the reference computes, its packed mask left out."""
    cache, tree = problem.cache, problem.tree
    moved = replace(
        cache,
        keys=cache.keys.cpu(),
        values=None if cache.values is None else cache.values.cpu(),
        table=cache.table.cpu(),
        table_start=cache.table_start.cpu(),
        lengths=cache.lengths.cpu(),
    )
    if tree is not None:
        tree = replace(
            tree, keys=tree.keys.cpu(), values=None if tree.values is None else tree.values.cpu(), mask=None
        )
    return replace(
        problem, query=problem.query.cpu(), row_start=problem.row_start.cpu(), cache=moved, tree=tree
    )


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """||actual - expected|| / ||expected||; NaN anywhere gives NaN, which passes no bound."""
    scale = expected.norm().clamp_min(1e-30)
    return float((actual.double().cpu() - expected).norm() / scale)
