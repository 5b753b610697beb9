"""Writes a small model in DeepSeek-V3's shape (latent attention, experts) with seeded random weights beside
the tiny pair's tokenizer: make_deepseek.py TARGET OUT [--dense], then without experts: SGLang's fp32 ones
cannot be captured in a CUDA graph.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

LAYERS = 6
# SGLang reads these from DeepSeek's own config.json; transformers no longer writes them.
DROPPED = {"moe_layer_freq": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}


def main(target: Path, out: Path, *, dense: bool) -> None:
    torch.manual_seed(1)
    config = DeepseekV3Config(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=512,
        moe_intermediate_size=128,
        num_hidden_layers=LAYERS,
        first_k_dense_replace=LAYERS if dense else LAYERS // 2,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        num_nextn_predict_layers=0,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=96,
        kv_lora_rank=256,  # of those that SGLang's Triton kernels know
        qk_nope_head_dim=32,
        qk_rope_head_dim=32,
        v_head_dim=32,
        max_position_embeddings=8192,
        # Without yarn SGLang has no rotary embedding for this family on a CPU.
        rope_scaling={
            "type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 2048,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
        initializer_range=0.2,
        eos_token_id=0,
        bos_token_id=0,
    )
    DeepseekV3ForCausalLM(config).save_pretrained(out)
    written = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps({**written, **DROPPED}) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(target / name, out / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), dense="--dense" in sys.argv[3:])
