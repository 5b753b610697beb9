"""A debug mode in which every rank checks that all ranks took the same step (KDTREE_CHECK_RANKS=1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kdtree_engine.batched import BatchedTree, BatchedWalk

VARIABLE = "KDTREE_CHECK_RANKS"


class RanksDifferError(RuntimeError):
    """Ranks of one tensor-parallel group built, walked or committed differently."""


def wanted(environment: Mapping[str, str], ranks: int) -> bool:
    """Whether steps are compared; one rank has nothing to compare."""
    return ranks > 1 and environment.get(VARIABLE, "") not in ("", "0")


def check(group: Any, tree: BatchedTree, walked: BatchedWalk) -> None:
    """Compare this step with every other rank's; all ranks must call it.

    group: SGLang's tensor-parallel group. Waits for the device. Raises RanksDifferError with the first part
    that differs.
    """
    parts = {
        "tree": [tree.tokens, tree.parent, tree.depth],
        "walk": [walked.path, walked.depth],
        "commit": [walked.lengths, walked.committed, walked.bonus],
    }
    for name, tensors in parts.items():
        own = torch.cat([tensor.flatten() for tensor in tensors])
        everyone = group.all_gather(own[None], dim=0)
        differing = (everyone != everyone[:1]).any(1).nonzero().flatten().tolist()
        if differing:
            raise RanksDifferError(f"ranks {differing} took another {name} than rank 0: {everyone.tolist()}")
