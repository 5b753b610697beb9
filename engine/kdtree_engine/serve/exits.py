"""How the launcher ends: documented exit codes (docs/engine.md) and the one line that says why."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of `kdtree_engine.serve`."""

    DRAINED = 0
    CONFIGURATION_REFUSED = 64
    PLUGIN_NOT_REGISTERED = 65
    DIED_LOADING = 70
    DIED_SERVING = 71
    DRAIN_DEADLINE = 75


class StopError(Exception):
    """The launcher ends with this code and this sentence."""

    def __init__(self, code: Exit, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
