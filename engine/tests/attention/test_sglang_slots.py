"""SGLang's call signatures in front of our kernels: same answers, and stock where ours do not apply."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from attention_problems import GPU, Problem, make_problem, on_cpu, relative_error
from kdtree_engine.attention import CacheType, Device, gqa, mla
from kdtree_engine.attention.reference import reference_attention
from kdtree_engine.attention.sglang_slots import Slots

pytestmark = pytest.mark.unit
SMALL = Device("small", 80, 6)
FP32 = gqa(4, 2, 16, CacheType.FP32)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("the stock kernel was called")


def in_pool(problem: Problem, pool: dict[str, torch.Tensor]) -> Problem:
    """The same problem with its cache in one pool, which keeps its address from forward to forward."""
    kept = {}
    for name in ("keys", "values"):
        part = getattr(problem.cache, name)
        if part is not None:
            whole = pool.setdefault(name, torch.zeros(80, *part.shape[1:], dtype=part.dtype, device=GPU))
            whole[: len(part)] = part
            kept[name] = whole
    return replace(problem, cache=replace(problem.cache, **kept))


def flat_mask(problem: Problem, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """SGLang's FULL_MASK: per request `rows` lines of prefix + rows bools, and where each request starts."""
    parts, start = [], [0]
    for b, length in enumerate(problem.cache.lengths.tolist()):
        own = problem.mask[b * rows : (b + 1) * rows, :rows]
        parts.append(torch.cat([torch.ones(rows, length, dtype=torch.bool), own], 1).flatten())
        start.append(start[-1] + len(parts[-1]))
    return torch.cat(parts).to(GPU), torch.tensor(start, device=GPU)


def verify(
    slots: Slots, problem: Problem, rows: int, indptr: torch.Tensor, **options: object
) -> torch.Tensor:
    out = torch.full_like(problem.query[..., : problem.shape.value_dim], torch.nan).contiguous()
    lengths = problem.cache.lengths
    indptr[: len(lengths) + 1] = torch.tensor([0, *lengths.cumsum(0).tolist()], device=GPU)
    mask, mask_start = (
        flat_mask(problem, rows) if problem.mask is not None else (None, torch.zeros(9, device=GPU))
    )
    keys, tree = problem.cache.keys, problem.tree
    values = keys[..., : problem.shape.value_dim] if problem.cache.values is None else problem.cache.values
    own = tree.keys[..., : problem.shape.value_dim] if tree.values is None else tree.values
    scale = problem.shape.key_dim**-0.5
    served = slots.verify(
        problem.query, tree.keys, own, out, keys, values, problem.row_start, indptr, problem.cache.table,
        mask, True, mask_start, rows, 1.0, 1.0, scale, window_kv_offsets=None, max_bs=8, **options,
    )  # fmt: skip
    assert served is not bool(options)
    return out


@pytest.mark.parametrize("shape", [FP32, mla(4, latent=64, rope=16)], ids=["gqa", "mla"])
@pytest.mark.parametrize("tree", ["random", "chain"])
def test_verify_follows_lengths_and_masks_from_forward_to_forward(shape, tree):
    slots, indptr = Slots(64, SMALL, refuse), torch.zeros(9, dtype=torch.int32, device=GPU)
    pool: dict[str, torch.Tensor] = {}
    for seed, lengths in enumerate(([20, 5], [21, 9], [3, 30])):
        problem = in_pool(make_problem(shape, lengths, [5, 5], tree=tree, seed=seed), pool)
        out = verify(slots, problem, 5, indptr)
        host = on_cpu(problem)
        expected, _ = reference_attention(
            host.query, host.row_start, host.cache, host.tree, host.mask, shape.value_dim,
            shape.key_dim**-0.5,
        )  # fmt: skip
        assert relative_error(out, expected) < 8e-3


def test_layers_that_only_the_stock_kernel_computes_are_left_to_it():
    problem, indptr = make_problem(FP32, [8], [3], seed=1), torch.zeros(9, dtype=torch.int32, device=GPU)
    for options in ({"logit_cap": 30.0}, {"sliding_window_size": 4}, {"sinks": torch.zeros(4)}):
        assert torch.isnan(verify(Slots(64, SMALL, refuse), problem, 3, indptr, **options)).all()


def decode_arguments(problem: Problem, out: torch.Tensor, indptr: torch.Tensor) -> tuple[object, ...]:
    cache, scale = problem.cache, problem.shape.key_dim**-0.5
    unused = (None, None, None, 8)
    return (problem.query, cache.keys, cache.values, out, indptr, cache.table, *unused, scale, 1.0, 1.0)


def test_decode_sees_the_whole_cache_of_each_request():
    problem = make_problem(FP32, [17, 40], [1, 1], tree="none", seed=2)
    out, indptr = (
        torch.full((2, 4, 16), torch.nan, device=GPU),
        torch.tensor([0, 17, 57], dtype=torch.int32, device=GPU),
    )
    Slots(64, SMALL, refuse).decode(*decode_arguments(problem, out, indptr), has_mla=False)
    host = on_cpu(problem)
    expected, _ = reference_attention(
        host.query, host.row_start, host.cache, None, None, 16, problem.shape.key_dim**-0.5
    )
    assert relative_error(out, expected) < 2e-6


def test_decode_with_a_logit_cap_or_other_tokens_goes_to_the_stock_kernel():
    calls = []
    slots = Slots(64, SMALL, lambda *a, **k: calls.append(k["logit_cap"]))
    problem = make_problem(FP32, [17], [1], tree="none", seed=3)
    out, indptr = torch.zeros(1, 4, 16, device=GPU), torch.tensor([0, 17], dtype=torch.int32, device=GPU)
    slots.decode(*decode_arguments(problem, out, indptr), logit_cap=30.0)
    slots.decode(*decode_arguments(problem, out, indptr))
    slots.decode(*decode_arguments(problem, out, indptr.clone()))  # a sliding-window layer's starts
    assert calls == [30.0, 0.0]


def test_batch_sizes_share_one_workspace_and_keep_their_answers():
    slots, indptr = Slots(64, SMALL, refuse), torch.zeros(9, dtype=torch.int32, device=GPU)
    pool: dict[str, torch.Tensor] = {}
    sizes = []
    for seed, lengths in enumerate(([30, 9, 4], [25], [12, 40], [25, 6, 5])):
        problem = in_pool(make_problem(FP32, lengths, [4] * len(lengths), seed=seed), pool)
        out = verify(slots, problem, 4, indptr)
        host = on_cpu(problem)
        expected, _ = reference_attention(
            host.query, host.row_start, host.cache, host.tree, host.mask, 16, 0.25
        )
        assert relative_error(out, expected) < 2e-6
        sizes.append(slots.workspace_bytes)
    assert sizes == sorted(sizes) and len(set(sizes)) < len(sizes)
