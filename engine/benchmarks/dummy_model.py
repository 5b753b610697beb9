"""Configurations of large models for random weights (--load-format dummy): only shapes matter for time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

# Qwen3-8B's shape; its vocabulary is kept, so the head costs what it does there.
DENSE = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
LAYERS, DRAFT_LAYERS, FEATURES = 36, 5, [1, 9, 17, 25, 33]


def write_dense(folder: Path, pair: Path) -> tuple[Path, Path]:
    """Target and drafter folders like those of `pair`, in the shape of Qwen3-8B, without weights."""
    made = []
    for name, layers in (("target", LAYERS), ("drafter", DRAFT_LAYERS)):
        made.append(folder / name)
        shutil.copytree(
            pair / name, folder / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors")
        )
        path = folder / name / "config.json"
        config = json.loads(path.read_text())
        config |= {**DENSE, "num_hidden_layers": layers, "max_window_layers": layers}
        config["layer_types"] = ["full_attention"] * layers
        if name == "drafter":
            config["num_target_layers"] = LAYERS
            config["dflash_config"] = {**config["dflash_config"], "target_layer_ids": FEATURES}
        path.write_text(json.dumps(config, indent=1) + "\n")
    return made[0], made[1]
