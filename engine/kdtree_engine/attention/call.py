"""The one call: verify or decode attention for a ragged batch."""

from __future__ import annotations

import math
from typing import Any

import torch
from triton import knobs

from kdtree_engine.attention.merge_kernel import merge_kernel
from kdtree_engine.attention.plan import Plan
from kdtree_engine.attention.shapes import CacheType
from kdtree_engine.attention.split_kernel import split_kernel
from kdtree_engine.attention.tensors import PagedCache, Tree, Workspace, check

LOG2_E = math.log2(math.e)


def tree_attention(
    plan: Plan,
    workspace: Workspace,
    query: torch.Tensor,
    row_start: torch.Tensor,
    cache: PagedCache,
    tree: Tree | None,
    out: torch.Tensor,
    lse: torch.Tensor | None = None,
    softmax_scale: float | None = None,
) -> None:
    """Attend `query` to each request's cached prefix and, through the mask, to its tree; write `out`.

    `query` [rows, query_heads, key_dim], requests one after another; request b owns rows
    `row_start[b]` to `row_start[b + 1]` (int32 or int64 [batch + 1], at most `plan.rows` each).
    Without a tree every row sees the whole prefix and nothing else: plain decode.
    `out` [rows, query_heads, value_dim]; `lse` float32 [rows, query_heads], natural logarithm,
    -inf where a row sees nothing (its output is then 0). `softmax_scale` defaults to key_dim ** -0.5.

    Allocates nothing and never waits for the device, so it can be captured in a CUDA graph.
    ValueError for tensors that do not fit the plan.
    """
    check(plan, query, cache, tree, row_start, out)
    shape, tiles = plan.shape, plan.tiles
    scale = (softmax_scale if softmax_scale is not None else shape.key_dim**-0.5) * LOG2_E
    tree_keys = tree.keys if tree is not None else query
    mask = tree.mask if tree is not None else None
    merged: dict[str, Any] = {
        "PART": workspace.partial, "PART_LSE": workspace.lse, "PREFIX": cache.lengths, "ROW_START": row_start,
        "OUT": out, "LSE": lse if lse is not None else workspace.lse, "total_rows": query.shape[0],
        "splits": plan.splits, "HEADS": shape.query_heads, "HAS_TREE": tree is not None, "BN": tiles.tokens,
        "WITH_LSE": lse is not None, "OVERLAP": plan.overlap, "EARLY": plan.early,
    }  # fmt: skip
    shared: dict[str, Any] = merged | {
        "Q": query, "KC": cache.keys, "KT": tree_keys, "TABLE": cache.table, "TABLE_START": cache.table_start,
        "MASK": mask if mask is not None else row_start, "k_stride": cache.keys.stride(0),
        "kt_stride": tree_keys.stride(0), "words_a_row": plan.mask_words, "scale": scale,
        "CAUSAL": mask is None, "PAGE": cache.page_size, "BM": tiles.rows, "DN": shape.main_dim,
        "DR": shape.rope_dim, "num_warps": tiles.warps, **_launched_early(plan.early),
    }  # fmt: skip
    if plan.hopper:
        # Gluon is experimental and absent from Triton's interpreter: imported only where it is used.
        from kdtree_engine.attention.hopper_kernel import hopper_kernel

        hopper_kernel[(plan.row_blocks, plan.splits, plan.batch)](**shared, BUFFERS=tiles.stages)
    else:
        values = cache.values if cache.values is not None else cache.keys
        tree_values = tree.values if tree is not None and tree.values is not None else tree_keys
        split_kernel[(plan.row_blocks * shape.kv_heads, plan.splits, plan.batch)](
            **shared, VC=values, VT=tree_values, v_stride=values.stride(0), vt_stride=tree_values.stride(0),
            blocks=plan.row_blocks, kv_scale=cache.scale, GROUP=shape.group, DV=shape.value_dim,
            SHARED=shape.shared_kv, STAGES=tiles.stages, num_stages=tiles.stages,
            PRECISION="ieee" if shape.cache is CacheType.FP32 else "tf32", WIDEN=knobs.runtime.interpret,
        )  # fmt: skip
    if plan.splits > 1:
        # Many partial results: all of them in flight at once, over more and narrower programs.
        splits, columns, warps = (128, 32, 2) if plan.hopper and plan.splits > 64 else (32, 64, 1)
        columns = min(columns, shape.value_dim)
        merge_kernel[(plan.rows * shape.query_heads, shape.value_dim // columns, plan.batch)](
            **merged, DV=shape.value_dim, BD=columns, BS=splits, num_warps=warps, num_stages=1,
            **_launched_early(plan.overlap),
        )  # fmt: skip


def _launched_early(wanted: bool) -> dict[str, bool]:
    """Programmatic dependent launch, an option that only a launch on sm_90 and later may name."""
    return {"launch_pdl": True} if wanted else {}
