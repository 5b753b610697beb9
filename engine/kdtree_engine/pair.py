"""Does the drafter belong to the target? Both config.json say; what one does not name is not judged."""

from __future__ import annotations

from dataclasses import dataclass

from kdtree_engine.options import RefusedError


@dataclass(frozen=True)
class Target:
    """layers: decoder layers; context: tokens of the longest request that is served."""

    vocabulary: int | None
    hidden_size: int | None
    layers: int | None
    context: int


@dataclass(frozen=True)
class Drafter:
    """positions: tokens of context it knows; trained_on: layers of the target it was trained with; features:
    the target's layers whose hidden states it reads.
    """

    block_size: int | None
    vocabulary: int | None
    hidden_size: int | None
    positions: int | None
    trained_on: int | None
    features: tuple[int, ...] = ()


def check_pair(target: Target, drafter: Drafter, window: int | None) -> None:
    """Refuse a drafter that cannot draft for this target. Raises RefusedError.

    window: tokens that the drafter looks back, None for all of them.
    """
    for what, own, wanted in (
        ("vocabulary", drafter.vocabulary, target.vocabulary),
        ("hidden size", drafter.hidden_size, target.hidden_size),
        ("number of target layers", drafter.trained_on, target.layers),
    ):
        if own is not None and wanted is not None and own != wanted:
            raise RefusedError(f"the drafter's {what} is {own}, but the target has {wanted}")
    outside = [
        layer for layer in drafter.features if target.layers is not None and not 0 <= layer < target.layers
    ]
    if outside:
        raise RefusedError(f"the drafter reads layer {outside[0]} of a target that has {target.layers}")
    if window is None and drafter.positions is not None and drafter.positions < target.context:
        raise RefusedError(
            f"the drafter knows {drafter.positions} positions, but context-length is {target.context}: "
            "set speculative-draft-window-size"
        )
