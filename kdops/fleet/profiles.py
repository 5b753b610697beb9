"""Profiles, also called arms: named sets of overrides. Four are built in; `engine_profiles` adds more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kdops.fleet.settings import LINEAR, PLAIN, TREE


@dataclass(frozen=True)
class SameAs:
    """A value taken from another setting once that is known."""

    setting: str


BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "autoregressive": {"algorithm": PLAIN},
    "linear": {"algorithm": LINEAR},
    "ddtree": {"algorithm": TREE},
    "ddtree-chain": {"algorithm": TREE, "tree_budget": SameAs("block_size"), "topk_cap": 1},
}
"""`ddtree-chain` is the control arm: the tree path drawn out to a chain must behave like `linear`."""

DEFAULT_PROFILE = "linear"
