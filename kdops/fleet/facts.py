"""What a model's config.json says that memory and limits depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdops.fleet.model import Host
from kdops.fleet.settings import EngineConfig

_DTYPE_BYTES = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}


@dataclass(frozen=True)
class ModelFacts:
    """layers; heads: of attention, None if unknown; kv_values: KV cache values a token and layer, over all
    heads; kv_heads: heads they are split into, 0 for MLA, whose one latent is replicated on every rank;
    dtype_bytes: of the checkpoint; positions: longest context; block_size: of a DFlash drafter; weight_bytes:
    of the whole model on disk, None if unknown.
    """

    layers: int
    heads: int | None
    kv_values: int
    kv_heads: int
    dtype_bytes: int
    positions: int | None
    block_size: int | None
    weight_bytes: int | None
    source: str

    def kv_bytes(self, dtype_bytes: int | None = None, tp: int = 1) -> int:
        """Return the KV cache bytes of one token on one GPU under `tp`-way tensor parallelism.

        MLA (SGLang MLATokenToKVPool): layers × (latent + rope) × bytes on each rank. Otherwise the heads are
        divided, at least one a rank.
        """
        values = self.kv_values
        if self.kv_heads:
            values = values // self.kv_heads * max(1, self.kv_heads // tp)
        return self.layers * values * (dtype_bytes or self.dtype_bytes)


def from_config(config: Mapping[str, Any], *, weight_bytes: int | None = None, source: str) -> ModelFacts:
    """Read the facts from the mapping a Hugging Face config.json holds. Raises ValueError naming what is
    missing.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = {**config, **text}
    layers = _count(config, "num_hidden_layers")
    heads = _count(config, "num_attention_heads") if "num_attention_heads" in config else None
    if config.get("kv_lora_rank") is not None:
        kv_heads, values = 0, _count(config, "kv_lora_rank") + _count(config, "qk_rope_head_dim")
    else:
        queries = _count(config, "num_attention_heads")
        kv_heads = _count(config, "num_key_value_heads") if "num_key_value_heads" in config else queries
        size = (
            _count(config, "head_dim") if config.get("head_dim") else _count(config, "hidden_size") // queries
        )
        values = 2 * kv_heads * size
    dtype = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    if dtype not in _DTYPE_BYTES:
        raise ValueError(f"dtype {dtype!r} is not known")
    return ModelFacts(
        layers=layers,
        heads=heads,
        kv_values=values,
        kv_heads=kv_heads,
        dtype_bytes=_DTYPE_BYTES[dtype],
        positions=_count(config, "max_position_embeddings") if "max_position_embeddings" in config else None,
        block_size=_count(config, "block_size") if "block_size" in config else None,
        weight_bytes=weight_bytes,
        source=source,
    )


def dtype_bytes(config: EngineConfig, facts: ModelFacts) -> int:
    """Return the bytes of one KV cache value under the settings of `config`."""
    if config.kv_cache_dtype.startswith("fp8"):
        return 1
    if config.kv_cache_dtype != "auto":
        return 2
    return _DTYPE_BYTES.get(config.dtype, facts.dtype_bytes)


def known(host: Host, config: EngineConfig, variable: str = "engine_model_facts") -> ModelFacts | None:
    """Return the facts of the target (or, `engine_draft_facts`, the drafter), or None if nobody here knows
    them.

    They come from the inventory variable of that name, else from config.json if the model's folder is on this
    machine. Raises ValueError if what is there cannot be read.
    """
    found = document(host, config, variable)
    if found is None:
        return None
    return from_config(found.config, weight_bytes=found.weight_bytes, source=found.source)


@dataclass(frozen=True)
class Document:
    """A model's config.json as far as it is known, with the bytes of its weights and where both are from."""

    config: Mapping[str, Any]
    weight_bytes: int | None
    source: str


def document(host: Host, config: EngineConfig, variable: str) -> Document | None:
    """Return what `known` reads the facts from. Raises ValueError likewise."""
    written = host.variables.get(variable)
    if written is not None:
        if not isinstance(written, Mapping) or not isinstance(written.get("config"), Mapping):
            raise ValueError("must hold config (keys of the model's config.json), weight_bytes and source")
        weights = _count(written, "weight_bytes") if "weight_bytes" in written else None
        return Document(written["config"], weights, str(written.get("source", variable)))
    folder = config.model if variable == "engine_model_facts" else config.draft_model
    path = Path(folder or "/nonexistent") / "config.json"
    try:
        if not path.is_absolute() or not path.is_file():
            return None
        read = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(read, Mapping):
        raise ValueError(f"{path}: not a JSON object")
    size = sum(file.stat().st_size for file in path.parent.glob("*.safetensors"))
    return Document(read, size or None, str(path))


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{key} is {value!r}; a positive whole number is needed")
    return value
