"""Configurations of large models for random weights (--load-format dummy): only shapes matter for time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from servers import PAIR

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

# DeepSeek-V3's attention and small experts in a few layers, one GPU's share of the heads under TP 8: what a
# long context costs is attention.
LAYERS, HEADS, HIDDEN, VOCABULARY, POSITIONS, BLOCK = 4, 8, 7168, 4096, 262_144, 8

LATENT_TARGET = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 2048, "moe_intermediate_size": 256,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_routed_experts": 32, "n_shared_experts": 1,
    "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
    "attention_dropout": 0.0, "initializer_range": 0.02, "max_position_embeddings": POSITIONS,
    "tie_word_embeddings": False, "use_cache": True, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
    "num_nextn_predict_layers": 0, "pretraining_tp": 1, "torch_dtype": "bfloat16",
}  # fmt: skip

LATENT_DRAFTER = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN, "intermediate_size": 2048, "num_hidden_layers": 1, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0,
    "initializer_range": 0.02, "tie_word_embeddings": False, "use_cache": True, "use_sliding_window": False,
    "sliding_window": None, "max_window_layers": 1, "layer_types": ["full_attention"], "rope_scaling": None,
    "bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0, "torch_dtype": "bfloat16",
    "block_size": BLOCK, "num_target_layers": LAYERS,
    "dflash_config": {"target_layer_ids": [1, 2], "mask_token_id": 3},
}  # fmt: skip


def write_dense(folder: Path) -> tuple[Path, Path]:
    """Target and drafter folders like those of the tiny pair, in the shape of Qwen3-8B."""
    target = {**_config("target"), **DENSE, **_layers(DENSE_LAYERS)}
    drafter = {**_config("drafter"), **DENSE, **_layers(DRAFT_LAYERS), "num_target_layers": DENSE_LAYERS}
    drafter["dflash_config"] = {**drafter["dflash_config"], "target_layer_ids": list(FEATURES)}
    return _write(folder, target, drafter)


def write_latent(folder: Path) -> tuple[Path, Path]:
    """Target and drafter folders in DeepSeek-V3's shape, with the tiny pair's tokenizer."""
    return _write(folder, LATENT_TARGET, LATENT_DRAFTER)


def _write(folder: Path, target: dict[str, Any], drafter: dict[str, Any]) -> tuple[Path, Path]:
    for name, config in (("target", target), ("drafter", drafter)):
        skip = shutil.ignore_patterns("*.safetensors")
        shutil.copytree(PAIR / name, folder / name, dirs_exist_ok=True, ignore=skip)
        (folder / name / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return folder / "target", folder / "drafter"


def _config(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((PAIR / name / "config.json").read_text())
    return config


def _layers(count: int) -> dict[str, Any]:
    return {
        "num_hidden_layers": count,
        "max_window_layers": count,
        "layer_types": ["full_attention"] * count,
    }
