"""Tree and walk of `batched` as one Triton program per request: a step's bookkeeping in two launches."""

from __future__ import annotations

import torch
import triton

from kdtree_engine.batched import BatchedTree, BatchedWalk, root_only
from kdtree_engine.kernels.tree_kernel import build_kernel, walk_kernel
from kdtree_engine.tree import max_nodes


def build(
    logp: torch.Tensor, candidates: torch.Tensor, root: torch.Tensor, budget: int, *, keep_spine: bool = False
) -> BatchedTree:
    """`batched.build`: same arguments, same tree, same ValueError."""
    batch, depths, width = logp.shape
    limit = max_nodes(depths, width)
    if not 1 <= budget <= limit:
        raise ValueError(f"a tree of this depth and width has 1 to {limit} nodes, not {budget}")
    if budget == 1:  # Triton 3.6 compiles no such loop for sm_90
        return root_only(root)
    tokens, depth, rank, parent = (
        torch.empty(batch, budget, dtype=torch.int64, device=logp.device) for _ in range(4)
    )
    ancestors = torch.empty(batch, budget, budget, dtype=torch.bool, device=logp.device)
    build_kernel[(batch,)](
        logp.float().contiguous(),
        candidates.contiguous(),
        root.contiguous(),
        tokens,
        depth,
        rank,
        parent,
        ancestors,
        DEPTHS=depths,
        WIDTH=width,
        BUDGET=budget,
        SPINE=min(depths, budget - 1) if keep_spine else 0,
        NODES=triton.next_power_of_2(budget),
        num_warps=4 if budget <= 64 else 8,
    )
    return BatchedTree(tokens, depth, rank, parent, ancestors)


def walk(tree: BatchedTree, target: torch.Tensor, depths: int) -> BatchedWalk:
    """`batched.walk`: same arguments, same path."""
    batch, size = tree.tokens.shape
    path, committed = (
        torch.empty(batch, depths + 1, dtype=torch.int64, device=target.device) for _ in range(2)
    )
    lengths, depth, bonus = (torch.empty(batch, dtype=torch.int64, device=target.device) for _ in range(3))
    walk_kernel[(batch,)](
        tree.tokens.contiguous(),
        tree.depth.contiguous(),
        tree.parent.contiguous(),
        target.contiguous(),
        path,
        committed,
        lengths,
        depth,
        bonus,
        SIZE=size,
        DEPTHS=depths,
        NODES=triton.next_power_of_2(size),
        STEPS=triton.next_power_of_2(depths + 1),
    )
    return BatchedWalk(path, lengths, depth, committed, bonus)
