"""Configurations of a dummy MLA target in DeepSeek-V3's shape and of a DFlash drafter for it.

Weights are never written: start SGLang with `--load-format dummy`. One GPU's share under TP8, so 8 heads.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

LAYERS, HEADS, HIDDEN, VOCABULARY, POSITIONS, BLOCK = 4, 8, 7168, 4096, 262_144, 8

TARGET = {
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

DRAFTER = {
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


def write_models(folder: Path) -> tuple[Path, Path]:
    """Write both configurations; return the target's and the drafter's folder."""
    for name, config in (("target", TARGET), ("drafter", DRAFTER)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return folder / "target", folder / "drafter"


if __name__ == "__main__":
    print(*write_models(Path(sys.argv[1])), sep="\n")
