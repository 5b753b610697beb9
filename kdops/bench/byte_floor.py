"""The least time a step can take: what it must read from GPU memory, over the memory's bandwidth."""

from __future__ import annotations

from typing import Any

from kdops.fleet import EngineConfig, Host
from kdops.fleet.memory import foresee


def of(host: Host, config: EngineConfig) -> dict[str, Any] | None:
    """Return base (s), per_token (s) and gpu for one GPU of the host; None if the model's bytes are unknown.

    Every step reads the weights and the whole KV cache once. A mixture of experts reads fewer weights in a
    small batch, so its floor is an upper estimate. The drafter's own cache is left out.
    """
    try:
        bytes_ = foresee(config, host)
    except ValueError:
        return None
    if bytes_ is None or bytes_.weight_bytes is None or not host.gpu.bandwidth:
        return None
    weights = bytes_.weight_bytes + (bytes_.draft_weight_bytes or 0)
    return {
        "base": weights / host.gpu.bandwidth,
        "per_token": bytes_.kv_bytes_per_token / host.gpu.bandwidth,
        "gpu": host.gpu.name,
    }
