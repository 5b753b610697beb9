"""What DDTREE itself refuses at its start (kdtree_engine/options.py), as far as settings show it before."""

from __future__ import annotations

from collections.abc import Iterator

from kdops.fleet.settings import EngineConfig
from kdops.fleet.sglang_options import given

_TREE_MASK = {"cpu": "torch_native", "cuda": "triton"}


def contradictions(config: EngineConfig) -> Iterator[tuple[str, str]]:
    """Yield (setting, sentence)."""
    yield from _budget(config)
    yield from _attention(config)
    if config.device == "cuda":
        yield from _graphs(config)


def _budget(config: EngineConfig) -> Iterator[tuple[str, str]]:
    if isinstance(config.tree_budget, str):
        return  # auto chooses within both
    block = f"engine_block_size = {config.block_size}"
    most = sum(config.topk_cap**depth for depth in range(config.block_size))
    if config.tree_budget < config.block_size:
        yield (
            "tree_budget",
            f"{config.tree_budget} rows (root included) cannot hold one block; at least {block}",
        )
    elif config.tree_budget > most:
        text = (
            f"{config.tree_budget} rows; {block} and engine_topk_cap = {config.topk_cap} allow {most} at most"
        )
        yield "tree_budget", text


def _attention(config: EngineConfig) -> Iterator[tuple[str, str]]:
    wanted = _TREE_MASK[config.device]
    told = f"reads no tree mask on {config.device}; DDTREE needs {wanted}"
    if config.attention_backend != wanted:
        yield "attention_backend", f"{config.attention_backend} {told}"
    for attribute in ("decode_attention_backend", "prefill_attention_backend"):
        option, backend = given(config.extra_args, attribute) or ("", wanted)
        if backend != wanted:
            yield "extra_args", f"{option} {backend} {told}"
    option, value = given(config.extra_args, "enable_deterministic_inference") or ("", False)
    if value:
        yield "extra_args", f"{option} and DDTREE exclude each other"


def _graphs(config: EngineConfig) -> Iterator[tuple[str, str]]:
    if config.cuda_graph_decode == "breakable":
        yield "cuda_graph_decode", "a tree in breakable graphs was never compared with plain decoding; full"
