"""The kernels with the tiles and plans that this GPU gets, against float64; collected only where one is.

The calls of one graph share a workspace, as layers do, and are replayed over poisoned outputs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from attention_problems import Problem, make_problem, on_cpu, relative_error
from kdtree_engine.attention import CacheType, Plan, Workspace, detect, gqa, make_plan, mla, tree_attention
from kdtree_engine.attention.reference import reference_attention
from kdtree_engine.attention.tiles import portable_tiles

SHAPES = {
    "mla": mla(8),
    "mla-fp8": mla(8, CacheType.FP8_E4M3),
    "gqa-64": gqa(8, 2, 64),
    "gqa-128": gqa(16, 2, 128),
    "gqa-256": gqa(8, 2, 256),
    "gqa-fp32": gqa(8, 2, 64, CacheType.FP32),
}
BATCHES = {
    "decode": ([2111, 130, 64], [1, 1, 1], "none"),
    "one request": ([2111], [8], "random"),
    "few rows": ([2111, 130, 64], [8, 3, 5], "random"),
    "many rows": ([1000, 0, 65], [33, 7, 20], "random"),
    "chain": ([1000, 0, 65], [33, 7, 20], "chain"),
}


def replayed(plan: Plan, problems: list[Problem]) -> list[torch.Tensor]:
    """Outputs of one call a problem, replayed from a graph over poisoned outputs and workspace."""
    workspace = Workspace.allocate(plan, "cuda")
    outs = [p.query.new_empty(*p.query.shape[:2], plan.shape.value_dim) for p in problems]

    def calls() -> None:
        for p, out in zip(problems, outs, strict=True):
            tree_attention(plan, workspace, p.query, p.row_start, p.cache, p.tree, out)

    calls()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    for poisoned in (*outs, workspace.partial, workspace.lse):
        poisoned.fill_(torch.nan)
    graph.replay()
    return outs


@pytest.mark.parametrize("kernel", ["chosen", "portable"])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("batch", sorted(BATCHES))
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_calls_of_one_graph_match_float64(name: str, batch: str, page_size: int, kernel: str) -> None:
    shape, (lengths, rows, tree) = SHAPES[name], BATCHES[batch]
    bound = 2e-6 if shape.cache is CacheType.FP32 else 8e-3
    tiles = portable_tiles(shape, detect(), max(rows)) if kernel == "portable" else None
    problems = [make_problem(shape, lengths, rows, page_size, tree, seed=seed) for seed in range(3)]
    expected = [
        reference_attention(
            p.query, p.row_start, p.cache, p.tree, p.mask, shape.value_dim, shape.key_dim**-0.5
        )[0]
        for p in map(on_cpu, problems)
    ]
    chosen = make_plan(shape, detect(), len(rows), max(rows), 2500, tiles)
    for splits in {chosen.splits, 1, 70}:
        plan = replace(chosen, splits=splits, overlap=chosen.overlap and splits > 1)
        for out, right in zip(replayed(plan, problems), expected, strict=True):
            assert relative_error(out, right) < bound
