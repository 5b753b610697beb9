"""What DDTREE itself refuses at its start (kdtree_engine/options.py), as far as settings show it before."""

from __future__ import annotations

from collections.abc import Iterator

from kdops.fleet.settings import EngineConfig
from kdops.fleet.sglang_options import given

_TREE_MASK = {"cpu": "torch_native", "cuda": "triton"}
_GRAPH = "DDTREE verifies no tree on a GPU without a graph"


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
    if config.cuda_graph_decode == "disabled":
        yield "cuda_graph_decode", f"disabled, but {_GRAPH}; set full"
    for attribute in ("disable_cuda_graph", "disable_decode_cuda_graph"):
        option, value = given(config.extra_args, attribute) or ("", False)
        if value and config.cuda_graph_decode is None:  # a backend that is named wins over these switches
            yield "extra_args", f"{option}, but {_GRAPH}"
    captured = _largest_graph(config)
    if captured and config.max_running_requests and config.max_running_requests > captured:
        text = f"{config.max_running_requests}, but decode graphs reach batches of {captured}: {_GRAPH}"
        yield "max_running_requests", text


def _largest_graph(config: EngineConfig) -> int | None:
    """Return the largest batch with a decode graph, where it was chosen: SGLang's own goes by the GPU."""
    for attribute in ("cuda_graph_bs_decode", "cuda_graph_max_bs_decode"):  # the list wins
        _, value = given(config.extra_args, attribute) or ("", None)
        sizes = [size for size in (value if isinstance(value, list) else [value]) if isinstance(size, int)]
        if sizes:
            return max(sizes)
    return None
