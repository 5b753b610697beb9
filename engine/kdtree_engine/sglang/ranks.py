"""What the ranks of a tensor-parallel group tell each other beside SGLang: the first one's step times, and in
a debug mode (KDTREE_CHECK_RANKS=1) every step, to check that all took the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kdtree_engine.batched import BatchedTree, BatchedWalk

VARIABLE = "KDTREE_CHECK_RANKS"


class RanksDifferError(RuntimeError):
    """Ranks of one tensor-parallel group chose, built, walked or committed differently."""


def wanted(environment: Mapping[str, str], ranks: int) -> bool:
    """Whether steps are compared; one rank has nothing to compare."""
    return ranks > 1 and environment.get(VARIABLE, "") not in ("", "0")


def check_width(group: Any, rows: int, device: Any) -> None:
    """Compare the chosen verify width before anything of that size is launched; all ranks must call it.

    group: SGLang's tensor-parallel group. Waits for the device. Raises RanksDifferError.
    """
    _check(group, "width", torch.tensor([rows], device=device))


def check(group: Any, tree: BatchedTree, walked: BatchedWalk) -> None:
    """Compare this step with every other rank's, as `check_width` does, up to the first part that differs."""
    _check(group, "tree", tree.tokens, tree.parent, tree.depth)
    _check(group, "walk", walked.path, walked.depth)
    _check(group, "commit", walked.lengths, walked.committed, walked.bonus)


def _check(group: Any, name: str, *tensors: torch.Tensor) -> None:
    own = torch.cat([tensor.flatten() for tensor in tensors])
    everyone = group.all_gather(own[None], dim=0)
    differing = (everyone != everyone[:1]).any(1).nonzero().flatten().tolist()
    if differing:
        raise RanksDifferError(f"ranks {differing} took another {name} than rank 0: {everyone.tolist()}")


def first_ranks(group: Any, own: Sequence[float]) -> list[float]:
    """The first rank's numbers, over the group's connection between processors; all ranks must call it."""
    numbers = torch.tensor(own, dtype=torch.float64)
    torch.distributed.broadcast(numbers, src=group.first_rank, group=group.cpu_group)
    found: list[float] = numbers.tolist()
    return found
