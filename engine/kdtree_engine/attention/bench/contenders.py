"""The kernels under test, each as a list of calls over the rotating caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from kdtree_engine.attention.bench.cases import Inputs
from kdtree_engine.attention.call import tree_attention
from kdtree_engine.attention.devices import Device
from kdtree_engine.attention.plan import make_plan
from kdtree_engine.attention.tensors import Workspace
from kdtree_engine.attention.tiles import Tiles

Calls = Sequence[Callable[[], None]]


def ours(inputs: Inputs, device: Device, tiles: Tiles | None = None) -> Calls:
    """Our call with the plan it would choose in the engine, or the portable kernel with the given tiles."""
    case = inputs.case
    plan = make_plan(case.shape, device, case.batch, case.rows, case.context, portable=tiles)
    workspace = Workspace.allocate(plan, "cuda")
    return [
        partial(
            tree_attention, plan, workspace, inputs.query, inputs.row_start, inputs.cache(i), inputs.tree,
            inputs.out,
        )
        for i in range(inputs.copies)
    ]  # fmt: skip


def stock(inputs: Inputs) -> Calls:
    """SGLang's Triton verify kernel. ImportError where SGLang is not installed."""
    from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd

    case, shape = inputs.case, inputs.case.shape
    own = inputs.tree.values
    if own is None:
        own = inputs.tree.keys[..., : shape.value_dim].contiguous()
    seen = torch.ones(case.rows, case.context, dtype=torch.bool, device="cuda")
    mask = torch.cat([seen, inputs.mask], 1).flatten().repeat(case.batch)
    steps = torch.arange(case.batch + 1, device="cuda")
    kv_start = (steps * case.context).to(torch.int32)
    mask_start = steps * (case.rows * (case.context + case.rows))

    def call(copy: int) -> None:
        cache = inputs.cache(copy)
        values = cache.keys[..., : shape.value_dim] if cache.values is None else cache.values
        extend_attention_fwd(
            inputs.query, inputs.tree.keys, own, inputs.out, cache.keys, values, inputs.row_start, kv_start,
            inputs.slot_lists[copy], mask, True, mask_start, case.rows, 1.0, 1.0,
            sm_scale=shape.key_dim**-0.5,
        )  # fmt: skip

    return [partial(call, i) for i in range(inputs.copies)]


def flashmla(inputs: Inputs) -> Calls:
    """FlashMLA's dense decode without a tree (pages of 64). ImportError where its binary is missing."""
    from sgl_kernel.flash_mla import flash_mla_with_kvcache, get_mla_metadata

    case, shape = inputs.case, inputs.case.shape
    query = inputs.query.view(case.batch, case.rows, shape.query_heads, shape.key_dim)
    meta, splits = get_mla_metadata(inputs.lengths, case.rows * shape.query_heads, 1)

    def call(copy: int) -> None:
        cache = inputs.cache(copy)
        flash_mla_with_kvcache(
            query, cache.keys.view(-1, 64, 1, shape.key_dim), cache.table, inputs.lengths, shape.value_dim,
            meta,
            splits, softmax_scale=shape.key_dim**-0.5, causal=False,
        )  # fmt: skip

    return [partial(call, i) for i in range(inputs.copies)]
