"""Checkpoints as transformers and SGLang read them."""

import json
import shutil
from pathlib import Path

import torch
from model import BLOCK, CAPTURE, CFG, DRAFT_LAYERS, EOT, IM_END, MASK, Drafter, Target


def hf_config(layers):
    return dict(
        CFG,
        model_type="qwen3",
        num_hidden_layers=layers,
        hidden_act="silu",
        attention_bias=False,
        attention_dropout=0.0,
        initializer_range=0.02,
        tie_word_embeddings=False,
        use_cache=True,
        use_sliding_window=False,
        sliding_window=None,
        max_window_layers=layers,
        layer_types=["full_attention"] * layers,
        rope_scaling=None,
        rope_parameters={"rope_type": "default", "rope_theta": CFG["rope_theta"]},
        bos_token_id=None,
        eos_token_id=EOT,
        pad_token_id=EOT,
        dtype="bfloat16",
        torch_dtype="bfloat16",
    )


def save_target(m, path, data, mask_emb=None):
    from safetensors.torch import save_file

    Path(path).mkdir(parents=True, exist_ok=True)
    sd = {
        ("" if k.startswith("lm_head") else "model.") + k: v.detach()
        .to("cpu", torch.bfloat16)
        .contiguous()
        .clone()
        for k, v in m.state_dict().items()
    }
    if mask_emb is not None:
        sd["model.embed_tokens.weight"][MASK] = mask_emb.detach().to("cpu", torch.bfloat16)
    save_file(sd, f"{path}/model.safetensors", metadata={"format": "pt"})
    write_json(
        f"{path}/config.json",
        dict(architectures=["Qwen3ForCausalLM"], **hf_config(CFG["num_hidden_layers"])),
    )
    write_json(
        f"{path}/generation_config.json",
        {"eos_token_id": [EOT, IM_END], "pad_token_id": EOT, "do_sample": False},
    )
    copy_tokenizer(data, path)


def save_drafter(d, path, data):
    from safetensors.torch import save_file

    Path(path).mkdir(parents=True, exist_ok=True)
    save_file(
        {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in d.state_dict().items()},
        f"{path}/model.safetensors",
        metadata={"format": "pt"},
    )
    write_json(
        f"{path}/config.json",
        dict(
            architectures=["DFlashDraftModel"],
            **hf_config(DRAFT_LAYERS),
            block_size=BLOCK,
            num_target_layers=CFG["num_hidden_layers"],
            dflash_config={"target_layer_ids": CAPTURE, "mask_token_id": MASK},
        ),
    )
    copy_tokenizer(data, path)


def copy_tokenizer(data, path):
    for f in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if Path(data, f).exists():
            shutil.copy(f"{data}/{f}", path)


def load_target(path, dtype, dev):
    from safetensors.torch import load_file

    m = Target()
    m.load_state_dict(
        {k.removeprefix("model."): v for k, v in load_file(f"{path}/model.safetensors").items()}
    )
    return m.to(dev, dtype).eval()


def load_drafter(path, dtype, dev):
    from safetensors.torch import load_file

    d = Drafter()
    d.load_state_dict(load_file(f"{path}/model.safetensors"))
    return d.to(dev, dtype).eval()


def write_json(path, value):
    Path(path).write_text(json.dumps(value, indent=1))
