"""DDTREE's settings and everything that can be refused before weights load."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kdtree_engine.policy import candidate_widths
from kdtree_engine.tree import max_nodes

AUTO = "auto"
AUTO_BLOCKS = 4  # the widest tree that `auto` considers
DEFAULT_TOPK_CAP = 4
MAX_BUDGET = 256
MAX_REQUESTS = 48  # at once, as SGLang's DFLASH, unless the configuration says otherwise
DECODE_GRAPHS = ("full", "disabled")  # what benchmarks/equality.py compares on a GPU
TREE_MASK_BACKENDS = {"cpu": "torch_native", "cuda": "triton"}


class RefusedError(ValueError):
    """A configuration that cannot work, said in one sentence."""


@dataclass(frozen=True)
class Request:
    """What the flags asked for. budget: verify rows, root included (default: twice the block), or AUTO."""

    budget: int | str | None = None
    topk_cap: int | None = None
    keep_spine: bool = False


@dataclass(frozen=True)
class Surroundings:
    """The facts of the rest of the configuration that DDTREE depends on."""

    drafter: str | None
    drafter_block_size: int | None
    asked_block_size: int | None
    draft_window: int | None
    pp_size: int
    vocabulary: int | None = None


@dataclass(frozen=True)
class Options:
    """Settled values.

    budget: verify rows per request, root included, the most of them when they are chosen per batch;
    topk_cap: candidates per draft position; auto: the widths to choose from, empty for a fixed budget.
    """

    block_size: int
    budget: int
    topk_cap: int
    keep_spine: bool
    auto: tuple[int, ...] = ()

    @property
    def depths(self) -> int:
        """Draft positions: the block without its first slot, which holds the last known token."""
        return self.block_size - 1

    @property
    def is_chain(self) -> bool:
        """Whether every tree is the drafter's best chain."""
        return self.topk_cap == 1


def settle(request: Request, around: Surroundings) -> Options:
    """Fill in defaults and refuse what cannot work. Raises RefusedError."""
    if around.pp_size != 1:
        raise RefusedError(f"DDTREE runs with pipeline parallel size 1, not {around.pp_size}")
    if not around.drafter:
        raise RefusedError("DDTREE needs a DFlash drafter: set speculative-draft-model-path")
    if around.drafter_block_size is None:
        raise RefusedError(f"the drafter {around.drafter} names no block_size in its config.json")
    block = around.drafter_block_size
    if block < 2:
        raise RefusedError(f"the drafter's block size is {block}; a tree needs at least 2")
    if around.asked_block_size not in (None, block):
        raise RefusedError(
            f"speculative-dflash-block-size is {around.asked_block_size}, but the drafter has {block}"
        )
    if around.draft_window is not None and around.draft_window < block:
        raise RefusedError(
            f"speculative-draft-window-size is {around.draft_window}, less than the block size {block}"
        )
    width = DEFAULT_TOPK_CAP if request.topk_cap is None else request.topk_cap
    if width < 1:
        raise RefusedError(f"ddtree-topk-cap is {width}; it counts candidates per position and starts at 1")
    if around.vocabulary is not None and width > around.vocabulary:
        raise RefusedError(f"ddtree-topk-cap is {width}, more than the vocabulary of {around.vocabulary}")
    largest = min(MAX_BUDGET, max_nodes(block - 1, width))
    if request.budget == AUTO:
        widths = candidate_widths(block, min(AUTO_BLOCKS * block, largest))
        return Options(block, widths[-1], width, request.keep_spine, widths)
    if isinstance(request.budget, str):
        raise RefusedError(f"ddtree-budget is {request.budget!r}; it can be a number or {AUTO}")
    budget = min(2 * block, largest) if request.budget is None else request.budget
    asked = f"ddtree-budget is {budget} (root included)"
    if budget < block:
        raise RefusedError(f"{asked}, less than the block size {block}, which the chain alone needs")
    if budget > largest:
        raise RefusedError(f"{asked}; block size {block} and ddtree-topk-cap {width} allow {largest} at most")
    return Options(block_size=block, budget=budget, topk_cap=width, keep_spine=request.keep_spine)


def check_device(
    *,
    device: str,
    attention_backends: Collection[str | None],
    attention_groups: int,
    deterministic: bool,
    graphs: str,
) -> None:
    """Refuse a device set-up that would give wrong tokens or was never seen to give right ones.

    attention_backends: every backend a target forward may use. attention_groups: ranks' groups with batches
    of their own. deterministic: SGLang's one-pass attention, whose mask covers the prefix too. graphs:
    SGLang's backend of decode graphs.
    Raises RefusedError.
    """
    wanted = TREE_MASK_BACKENDS["cpu" if device.startswith("cpu") else "cuda"]
    for backend in attention_backends:
        if backend != wanted:
            raise RefusedError(
                f"attention-backend {backend} takes no tree mask on {device}; DDTREE runs with {wanted}"
            )
    if deterministic:
        raise RefusedError("enable-deterministic-inference and DDTREE exclude each other: set one of them")
    if attention_groups != 1:
        raise RefusedError(
            f"DDTREE runs without attention data parallelism, not with {attention_groups} groups"
        )
    if not device.startswith("cpu") and graphs not in DECODE_GRAPHS:
        raise RefusedError(
            f"DDTREE has not been compared under decode graphs of the kind {graphs}: "
            f"set cuda-graph-backend-decode to {DECODE_GRAPHS[0]}"
        )
