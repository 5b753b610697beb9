"""Settings that are each right and together wrong: found in a second here, after eight minutes of loading there."""

from __future__ import annotations

from collections.abc import Iterator

from kdops.fleet.model import Host
from kdops.fleet.problems import Problem
from kdops.fleet.settings import PLAIN, TREE, EngineConfig


def contradictions(config: EngineConfig, host: Host) -> list[Problem]:
    """Return every contradiction between the settings of `config`, and between them and the host."""
    return [Problem(config.origins[key], f"engine_{key}: {text}") for key, text in _found(config, host)]


def _found(config: EngineConfig, host: Host) -> Iterator[tuple[str, str]]:
    if config.algorithm != PLAIN:
        yield from _speculative(config)
    if config.algorithm == TREE and config.tree_budget < config.block_size:
        yield (
            "tree_budget",
            f"{config.tree_budget} rows cannot hold one block; at least engine_block_size = {config.block_size} (root included)",
        )


def _speculative(config: EngineConfig) -> Iterator[tuple[str, str]]:
    if config.draft_model is None:
        yield "draft_model", f"profile {config.profile!r} drafts ({config.algorithm}) and needs a draft model"
    if config.draft_window is not None and config.draft_window < config.block_size:
        yield (
            "draft_window",
            f"{config.draft_window} is less than engine_block_size = {config.block_size}; the drafter could not see its own block",
        )
