"""Tree-verify and decode attention, split over the context.

    plan = make_plan(mla(heads=8), detect(), batch=1, rows=16, max_context=200_000)
    workspace = Workspace.allocate(plan, "cuda")
    tree_attention(plan, workspace, query, row_start, cache, tree, out)

Plan and workspace belong to a CUDA graph bucket; the call may be captured.
"""

from kdtree_engine.attention.call import tree_attention
from kdtree_engine.attention.devices import Device, detect
from kdtree_engine.attention.plan import Plan, make_plan
from kdtree_engine.attention.shapes import AttentionShape, CacheType, gqa, mla
from kdtree_engine.attention.tensors import PagedCache, Tree, Workspace, pack_mask

__all__ = [
    "AttentionShape",
    "CacheType",
    "Device",
    "PagedCache",
    "Plan",
    "Tree",
    "Workspace",
    "detect",
    "gqa",
    "make_plan",
    "mla",
    "pack_mask",
    "tree_attention",
]
