"""What the inventory and the release say of an engine, as the part of the evidence that needs no host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdops.diagnose.evidence import Change, Drafter
from kdops.fleet import EngineConfig, Host, facts
from kdops.fleet.memory import foresee
from kdops.fleet.settings import PLAIN, SETTINGS

_NO_CAUSE = {
    "service",
    "served_model_name",
    "user",
    "api_key_file",
    "start_timeout",
    "smoke_tokens",
    "smoke_timeout",
}


def memory(host: Host, config: EngineConfig) -> tuple[float | None, int | None]:
    """Return (floor, predicted pool): least seconds of a step for each token of context, and tokens; None if
    nobody knows the model's bytes or the GPU's bandwidth."""
    try:
        told = foresee(config, host)
    except ValueError:
        told = None
    if told is None:
        return None, None
    floor = told.kv_bytes_per_token / host.gpu.bandwidth if host.gpu.bandwidth else None
    measured_pool = host.gpu.memory and config.max_total_tokens is None
    return floor, told.tokens if measured_pool else None


def drafter(host: Host, config: EngineConfig) -> Drafter | None:
    """Return what is known of the drafter's config.json, None without one."""
    if config.algorithm == PLAIN:
        return None
    try:
        known = facts.known(host, config, "engine_draft_facts")
        read = facts.document(host, config, "engine_draft_facts")
    except ValueError:
        return None
    if known is None or read is None:
        return None
    window = read.config.get("sliding_window")
    return Drafter(known.block_size, known.positions, window if isinstance(window, int) else None)


def changes(good: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return the settings that differ from a good release's and can matter to an engine. Both map setting
    names to values."""
    return tuple(
        Change(name, good.get(name), now.get(name))
        for name in SETTINGS
        if name not in _NO_CAUSE and good.get(name) != now.get(name)
    )
