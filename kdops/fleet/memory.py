"""How many tokens will fit: known before the eight-minute load.

SGLang 0.5.23 sizes the pool as free memory after the weights less (1 - fraction) of the free memory before
them (kv_cache_configurator.py, _profile_available_bytes), divided by the target's plus the drafter's bytes a
token (dflash_utils.py), rounded down to pages. The drafter's weights come out of the remaining share.
"""

from __future__ import annotations

from dataclasses import dataclass

from kdops.fleet.facts import ModelFacts, dtype_bytes, known
from kdops.fleet.gpus import Gpu
from kdops.fleet.model import Host
from kdops.fleet.settings import PLAIN, EngineConfig

CONTEXT_BYTES = 600 * 1024**2
"""What the driver, a CUDA context and NCCL take on each GPU before the weights load."""

MIN_RESERVE = 2 * 1024**3
"""The least that activations and CUDA graphs take of a GPU: SGLang 0.5.23 itself sets aside more
(arg_groups/memory_hook.py: 512 MiB + 1.5 MiB a token of a prefill chunk + tp/8 GiB + graphs).
"""


@dataclass(frozen=True)
class Prediction:
    """Bytes are those of one GPU. tokens: capacity of the KV pool; None where memory is not predicted (CPU).

    reserve_bytes: what is left for activations and CUDA graphs; below MIN_RESERVE it will not start.
    """

    kv_bytes_per_token: int
    draft_kv_bytes_per_token: int
    weight_bytes: int | None
    draft_weight_bytes: int | None
    pool_bytes: int | None
    reserve_bytes: int | None
    tokens: int | None
    assumptions: tuple[str, ...]


def foresee(config: EngineConfig, host: Host) -> Prediction | None:
    """Predict for a host, None if nobody here knows the model. Raises ValueError for unreadable facts."""
    target, draft = known(host, config), known(host, config, "engine_draft_facts")
    return predict(config, host.gpu, target, draft) if target else None


def predict(config: EngineConfig, gpu: Gpu, target: ModelFacts, draft: ModelFacts | None) -> Prediction:
    """Predict the KV pool of one GPU. draft: facts of the drafter; ignored for plain decoding."""
    drafting = config.algorithm != PLAIN
    notes = [f"target: {target.source}"]
    cell = target.kv_bytes(dtype_bytes(config, target), config.tp)
    draft_cell = 0
    if drafting and draft:
        draft_cell = draft.kv_bytes(dtype_bytes(config, draft), config.tp)
        notes.append(f"drafter: {draft.source}")
    elif drafting:
        notes.append("drafter: unknown, counted as nothing")
    weights = None if target.weight_bytes is None else target.weight_bytes // config.tp
    draft_weights = draft.weight_bytes // config.tp if drafting and draft and draft.weight_bytes else None
    pool = reserve = tokens = None
    if gpu.memory and weights is not None:
        free = gpu.memory - CONTEXT_BYTES
        pool = max(0, int(free * config.memory_fraction) - weights)
        reserve = free - max(int(free * config.memory_fraction), weights) - (draft_weights or 0)
        tokens = pool // (cell + draft_cell)
    if config.max_total_tokens is not None:
        tokens = config.max_total_tokens if tokens is None else min(tokens, config.max_total_tokens)
    if tokens is not None:
        tokens = tokens // config.page_size * config.page_size
    return Prediction(cell, draft_cell, weights, draft_weights, pool, reserve, tokens, tuple(notes))
