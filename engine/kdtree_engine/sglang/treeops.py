"""Candidates, tree and walk where the tensors are: kernels on a GPU, plain torch operations on a CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kdtree_engine import batched
from kdtree_engine.batched import BatchedTree, BatchedWalk
from kdtree_engine.options import Options

Candidates = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Log-probabilities and ids of the best tokens for each row of hidden states."""


def best_tokens(logits: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """logits: [r, V]. Values [r, width] from the best down, their tokens, the rows' normalisers [r, 1]."""
    if logits.is_cuda:
        from kdtree_engine.kernels import best_tokens as kernels

        if width <= kernels.WIDEST:
            return kernels.best_tokens(logits, width)
    logits = logits.float()
    values, tokens = logits.topk(width, dim=-1)
    return values, tokens, logits.logsumexp(-1, keepdim=True)


def grow(options: Options, hidden: torch.Tensor, ids: torch.Tensor, candidates: Candidates) -> BatchedTree:
    """The trees of one drafter forward. hidden: [b * block, h]; ids: [b, block], the last known one first."""
    drafted = hidden.view(*ids.shape, -1)[:, 1:].flatten(0, 1)
    logp, tokens = (found.view(len(ids), options.depths, -1) for found in candidates(drafted))
    return build(options, logp, tokens, ids[:, 0])


def build(options: Options, logp: torch.Tensor, candidates: torch.Tensor, root: torch.Tensor) -> BatchedTree:
    """logp, candidates: [b, D, K], sorted from the best down; root: [b] (see `batched.build`)."""
    if logp.is_cuda:
        from kdtree_engine.kernels import tree as kernels

        return kernels.build(logp, candidates, root, options.budget, keep_spine=options.keep_spine)
    return batched.build(logp, candidates, root, options.budget, keep_spine=options.keep_spine)


def walk(options: Options, tree: BatchedTree, choice: torch.Tensor) -> BatchedWalk:
    """choice: [b, N] int64, the target's token after each node (see `batched.walk`)."""
    if choice.is_cuda:
        from kdtree_engine.kernels import tree as kernels

        return kernels.walk(tree, choice, options.depths)
    return batched.walk(tree, choice, options.depths)
