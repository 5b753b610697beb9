"""The portable kernel against float64, on the GPU where there is one, else under the interpreter."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from attention_problems import GPU, Problem, make_problem, on_cpu, relative_error
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kdtree_engine.attention import CacheType, Device, Workspace, gqa, make_plan, mla, tree_attention
from kdtree_engine.attention.reference import reference_attention
from kdtree_engine.attention.tiles import Tiles

pytestmark = pytest.mark.unit
SMALL = Device("small", 80, 6)
BOUND = {CacheType.BF16: 8e-3, CacheType.FP8_E4M3: 8e-3, CacheType.FP32: 2e-6}
SHAPES = {
    "mla": mla(4, latent=64, rope=16),
    "mla-fp8": mla(4, CacheType.FP8_E4M3, latent=64, rope=16),
    "gqa": gqa(4, 2, 16),
    "gqa-fp32": gqa(4, 2, 16, CacheType.FP32),
    "mha-fp32": gqa(2, 2, 32, CacheType.FP32),
}


def solve(
    problem: Problem, max_context: int, max_rows: int, splits: int | None = None, tile_rows: int = 16
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run the kernel with poisoned outputs and workspace; return output and LSE."""
    batch = len(problem.cache.lengths)
    plan = make_plan(problem.shape, SMALL, batch, max_rows, max_context, Tiles(tile_rows, 16, 4, 1))
    if splits:
        plan = replace(plan, splits=splits)
    workspace = Workspace.allocate(plan, GPU)
    workspace.partial.fill_(torch.nan)
    workspace.lse.fill_(torch.nan)
    total, heads = problem.query.shape[:2]
    out = torch.full(
        (total, heads, problem.shape.value_dim), torch.nan, dtype=problem.query.dtype, device=GPU
    )
    lse = torch.full((total, heads), torch.nan, device=GPU)
    tree_attention(plan, workspace, problem.query, problem.row_start, problem.cache, problem.tree, out, lse)
    return out, lse


def check(
    problem: Problem, max_context: int, max_rows: int, splits: int | None = None, tile_rows: int = 16
) -> None:
    out, lse = solve(problem, max_context, max_rows, splits, tile_rows)
    host = on_cpu(problem)
    expected, expected_lse = reference_attention(
        host.query,
        host.row_start,
        host.cache,
        host.tree,
        host.mask,
        host.shape.value_dim,
        host.shape.key_dim**-0.5,
    )
    assert relative_error(out, expected) < BOUND[problem.shape.cache]
    torch.testing.assert_close(lse.double().cpu(), expected_lse, rtol=1e-5, atol=1e-4)


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),  # shrinking runs the interpreter hundreds of times
    suppress_health_check=list(HealthCheck),
)
@given(
    name=st.sampled_from(sorted(SHAPES)),
    requests=st.lists(st.tuples(st.integers(0, 70), st.integers(1, 9)), min_size=1, max_size=3),
    page_size=st.sampled_from([1, 3, 16, 64]),
    tree=st.sampled_from(["random", "chain", "none"]),
    splits=st.sampled_from([None, 1, 2, 7]),
    slack=st.integers(0, 30),
    seed=st.integers(0, 10**6),
)
def test_any_ragged_batch_matches_float64(name, requests, page_size, tree, splits, slack, seed):
    lengths, rows = [r[0] for r in requests], [r[1] for r in requests]
    max_rows = max(rows) + slack
    problem = make_problem(
        SHAPES[name], lengths, rows, page_size, tree, seed=seed, max_rows=max_rows, device=GPU
    )
    check(problem, max(lengths) + slack, max_rows, splits)


@pytest.mark.parametrize("name, tree", [("mla", "random"), ("mla-fp8", "chain"), ("gqa", "none")])
def test_tiles_of_64_rows_mask_the_ends_of_prefix_and_tree(name, tree):
    lengths, rows = [48, 33, 0], [1, 1, 1] if tree == "none" else [18, 5, 33]
    problem = make_problem(SHAPES[name], lengths, rows, 16, tree, seed=9, device=GPU)
    check(problem, 48, max(rows), splits=2, tile_rows=64)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_wide_trees_cross_tiles_and_mask_words(name):
    check(make_problem(SHAPES[name], [37], [70], 16, seed=3, device=GPU), 37, 70)


def test_the_merge_reads_every_split_of_many():
    check(make_problem(SHAPES["gqa-fp32"], [640], [2], seed=8, device=GPU), 640, 2, splits=41)


@pytest.mark.parametrize("logit_scale", [0.0, 300.0, 1e5])
def test_extreme_logits_neither_overflow_nor_lose_the_peak(logit_scale):
    problem = make_problem(SHAPES["gqa-fp32"], [50, 3], [5, 2], logit_scale=logit_scale, seed=4, device=GPU)
    check(problem, 50, 5, splits=4)


def test_nothing_to_see_gives_zero_and_minus_infinity():
    problem = make_problem(SHAPES["gqa-fp32"], [0, 20], [1, 1], tree="none", seed=5, device=GPU)
    out, lse = solve(problem, 20, 1, splits=2)
    assert torch.all(out[0] == 0) and torch.all(torch.isneginf(lse[0]))
    assert torch.all(torch.isfinite(out[1])) and torch.all(torch.isfinite(lse[1]))


def test_one_plan_serves_every_context_of_its_bucket():
    for length in (0, 1, 15, 16, 17, 64, 95, 96):
        check(make_problem(SHAPES["gqa-fp32"], [length], [3], seed=length, device=GPU), 96, 3, splits=6)


def test_a_flat_index_list_and_a_page_table_are_the_same_thing():
    paged = make_problem(SHAPES["gqa-fp32"], [30, 17], [2, 3], 16, seed=6, device=GPU)
    table, flat, start = paged.cache.table, [], []
    for first, length in zip(paged.cache.table_start.tolist(), (30, 17), strict=True):
        token = torch.arange(length, device=GPU)
        start.append(sum(map(len, flat)))
        flat.append(table[first + token // 16].long() * 16 + token % 16)
    flat_cache = replace(
        paged.cache,
        table=torch.cat(flat),
        table_start=torch.tensor(start, device=GPU),
        page_size=1,
    )
    first_out, _ = solve(paged, 30, 3)
    second_out, _ = solve(replace(paged, cache=flat_cache), 30, 3)
    assert torch.equal(first_out, second_out)


def test_the_mask_decides_what_a_node_sees():
    problem = make_problem(SHAPES["gqa-fp32"], [0], [3], tree="random", seed=7, device=GPU)
    alone = replace(problem.tree, mask=torch.tensor([[1], [2], [4]], dtype=torch.int32, device=GPU))
    out, _ = solve(replace(problem, tree=alone), 0, 3)
    own = problem.tree.values.repeat_interleave(2, 1)
    torch.testing.assert_close(out, own)
