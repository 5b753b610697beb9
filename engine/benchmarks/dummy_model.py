"""Configurations of large models for random weights (--load-format dummy): only shapes matter for time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

# Qwen3-8B's shape; its vocabulary is kept, so the head costs what it does there.
DENSE: dict[str, Any] = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
DENSE_LAYERS, DRAFT_LAYERS, FEATURES = 36, 5, (1, 9, 17, 25, 33)

# Kimi K2's attention in a few dense layers: what a long context costs is attention.
LATENT: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": 163840,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_layer_freq": 1,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "max_position_embeddings": 262144,
    "rope_theta": 50000.0,
    "rope_scaling": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
}
LATENT_LAYERS, LATENT_FEATURES = 4, (0, 1, 2)


def write_dense(folder: Path, pair: Path) -> tuple[Path, Path]:
    """Target and drafter folders like those of `pair`, in the shape of Qwen3-8B, without weights."""
    target = {**_config(pair / "target"), **DENSE, **_layers(DENSE_LAYERS)}
    return _write(folder, pair, target, {**DENSE}, FEATURES)


def write_latent(folder: Path, pair: Path) -> tuple[Path, Path]:
    """A target with Kimi K2's attention in LATENT_LAYERS dense layers, and a drafter for it."""
    own = {"num_hidden_layers": LATENT_LAYERS, "first_k_dense_replace": LATENT_LAYERS}
    target = {**_config(pair / "target"), **LATENT, **own}
    for name in ("head_dim", "layer_types", "max_window_layers", "use_sliding_window", "sliding_window"):
        target.pop(name, None)
    drafter = {**DENSE, "vocab_size": LATENT["vocab_size"], "hidden_size": LATENT["hidden_size"]}
    return _write(folder, pair, target, drafter, LATENT_FEATURES)


def _write(
    folder: Path, pair: Path, target: dict[str, Any], drafter: dict[str, Any], features: tuple[int, ...]
) -> tuple[Path, Path]:
    base = _config(pair / "drafter")
    made = {
        "target": target,
        "drafter": {
            **base,
            **drafter,
            **_layers(DRAFT_LAYERS),
            "num_target_layers": target["num_hidden_layers"],
            "dflash_config": {**base["dflash_config"], "target_layer_ids": list(features)},
        },
    }
    for name, config in made.items():
        skip = shutil.ignore_patterns("*.safetensors")
        shutil.copytree(pair / name, folder / name, dirs_exist_ok=True, ignore=skip)
        (folder / name / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return folder / "target", folder / "drafter"


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config


def _layers(count: int) -> dict[str, Any]:
    return {
        "num_hidden_layers": count,
        "max_window_layers": count,
        "layer_types": ["full_attention"] * count,
    }
