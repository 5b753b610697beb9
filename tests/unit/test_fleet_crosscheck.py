"""Settings that contradict each other, the host or the model: refused before anything is uploaded."""

import dataclasses
import json
from pathlib import Path

import pytest
from fleet_files import host

from kdops import fleet
from kdops.errors import UsageError
from kdops.fleet import engine_config
from kdops.fleet.crosscheck import contradictions
from kdops.fleet.gpus import BY_ID
from kdops.fleet.resolve import typed_config

pytestmark = pytest.mark.unit

FACTS = """\
engine_model_facts:
  weight_bytes: 595000000000
  config: {num_hidden_layers: 61, kv_lora_rank: 512, qk_rope_head_dim: 64, max_position_embeddings: 262144}
engine_draft_facts:
  config: {num_hidden_layers: 5, num_attention_heads: 64, num_key_value_heads: 8, head_dim: 128,
           max_position_embeddings: 4096, block_size: 8}
engine_tp: 8
engine_draft_window: 2048
engine_context_length: 200000
"""


@pytest.mark.parametrize("name", ["ct200", "b300", "lab0"])
def test_shipped_hosts_are_sound_in_all_profiles(name: str) -> None:
    found = fleet.load().one(name)
    for profile in fleet.profile_names(found):
        assert engine_config(found, profile).profile == profile


@pytest.mark.parametrize(
    ("profile", "changes", "key", "said"),
    [
        ("linear", {"draft_window": 7}, "draft_window", "below engine_block_size = 8"),
        ("ddtree", {"tree_budget": 7}, "tree_budget", "at least engine_block_size = 8"),
        ("ddtree", {"tree_budget": 9, "topk_cap": 1}, "tree_budget", "allow 8 at most"),
        ("ddtree", {"cuda_graph_decode": "breakable"}, "cuda_graph_decode", "never compared"),
        ("ddtree", {"attention_backend": None}, "attention_backend", "triton"),
        ("linear", {"draft_model": None}, "draft_model", "needs a draft model"),
        ("linear", {"block_size": 16}, "block_size", "trained with 8"),
        ("linear", {"draft_window": None}, "draft_window", "knows 4096 positions of 200000"),
        ("linear", {"context_length": 300_000}, "context_length", "knows 262144 positions"),
        ("linear", {"memory_fraction": 0.55}, "context_length", "predicted to hold 112507"),
        ("linear", {"memory_fraction": 0.4}, "memory_fraction", "leaves no KV pool"),
        ("linear", {"max_total_tokens": 60_000}, "max_total_tokens", "predicted to hold 60000"),
        ("linear", {"tp": 16}, "tp", "gpu_count 8"),
        ("linear", {"extra_args": {"pp-size": 2}}, "extra_args", "works with 1 only"),
        ("linear", {"extra_args": {"dp-size": 2}}, "extra_args", "works with 1 only"),
        ("linear", {"attention_backend": "flashmla"}, "page_size", "needs pages of 64"),
        (
            "linear",
            {"attention_backend": "trtllm_mla", "page_size": 64},
            "attention_backend",
            "no kernels for",
        ),
        ("ddtree", {"attention_backend": "flashinfer"}, "attention_backend", "reads no tree mask"),
        ("ddtree", {"attention_backend": "torch_native"}, "attention_backend", "DDTREE needs triton"),
        (
            "ddtree",
            {"extra_args": {"decode-attention-backend": "fa3"}},
            "extra_args",
            "decode-attention-backend fa3 reads no tree mask",
        ),
        ("ddtree", {"extra_args": {"enable-deterministic-inference": True}}, "extra_args", "exclude"),
        ("ddtree", {"extra_args": {"attn-dp-size": 2}}, "extra_args", "works with 1 only"),
        ("linear", {"attention_backend": "trtllm_mha", "page_size": 64}, "attention_backend", "not for MLA"),
        ("linear", {"environment": {"CUDA_VISIBLE_DEVICES": "0,1"}}, "environment", "names 2"),
        ("linear", {"environment": {"CUDA_VISIBLE_DEVICES": ""}}, "environment", "names 0"),
        (
            "autoregressive",
            {"environment": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, "extra_args": {"pp-size": 2}},
            "environment",
            "names 8 devices, and 16 are needed",
        ),
        (
            "linear",
            {"device": "cpu", "lock": "cpu", "attention_backend": "triton"},
            "attention_backend",
            "a GPU",
        ),
        ("linear", {"device": "cpu"}, "lock", "must be cpu"),
        ("linear", {"lock": "cpu"}, "lock", "must be cuda"),
    ],
)
def test_contradiction_is_refused(
    tmp_path: Path, profile: str, changes: dict[str, object], key: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        engine_config(host(tmp_path, FACTS), profile, changes)
    lines = [caught.value.cause, *caught.value.evidence]
    assert any(f"engine_{key}: " in line and said in line for line in lines), lines


@pytest.mark.parametrize(
    ("profile", "changes"),
    [
        ("linear", {"cuda_graph_decode": "disabled", "attention_backend": "torch_native"}),
        ("ddtree", {"cuda_graph_decode": "disabled"}),
        ("ddtree", {"max_running_requests": 9, "extra_args": {"cuda-graph-max-bs-decode": 8}}),
        ("ddtree", {"extra_args": {"enable-deterministic-inference": False}}),
        ("linear", {"attention_backend": "flashmla", "page_size": 64}),
        ("linear", {"environment": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}}),
        ("linear", {"environment": {"CUDA_VISIBLE_DEVICES": "0"}, "extra_args": {"base-gpu-id": 1}}),
    ],
)
def test_what_only_another_algorithm_or_layout_forbids_is_let_through(
    tmp_path: Path, profile: str, changes: dict[str, object]
) -> None:
    assert engine_config(host(tmp_path, FACTS), profile, changes).profile == profile


@pytest.mark.parametrize(
    ("profile", "changes", "refused"),
    [
        ("linear", {"tp": 3}, ["target", "drafter"]),
        ("autoregressive", {"tp": 3}, ["target"]),
        ("linear", {"tp": 4}, []),
        ("autoregressive", {"tp": 3, "extra_args": {"dp-size": 3}}, []),
        ("linear", {"tp": 3, "device": "cpu"}, []),
    ],
)
def test_a_tp_that_does_not_divide_the_heads_is_refused(
    profile: str, changes: dict[str, object], refused: list[str]
) -> None:
    found = fleet.load().one("b300")
    said = [one.text for one in contradictions(typed_config(found, profile, changes), found)]
    assert [text for text in said if text.startswith("engine_tp: ")] == [
        f"engine_tp: 3 does not divide the 64 attention heads of the {model}" for model in refused
    ]


@pytest.mark.parametrize("name", ["ct200", "lab0"])
def test_auto_budget_is_bound_by_neither_block_nor_cap_nor_ranks(name: str) -> None:
    changes = {"tree_budget": "auto", "topk_cap": 1}
    assert engine_config(fleet.load().one(name), "ddtree", changes).tree_budget == "auto"


@pytest.mark.parametrize(
    ("gpu", "backend", "mla", "refused"),
    [
        ("rtx-pro-6000-blackwell-server", "flashmla", True, True),
        ("h200-sxm", "flashmla", True, False),
        ("rtx-pro-6000-blackwell-server", "fa4", True, True),
        ("rtx-pro-6000-blackwell-server", "fa4", False, False),
        ("h200-sxm", "fa4", True, True),
        ("b300-sxm6", "fa4", True, False),
    ],
)
def test_a_backend_without_kernels_for_the_gpu_and_the_model_is_refused(
    tmp_path: Path, gpu: str, backend: str, mla: bool, refused: bool
) -> None:
    heads = "kv_lora_rank: 512, qk_rope_head_dim: 64" if mla else "num_attention_heads: 64, head_dim: 128"
    facts = f"engine_model_facts: {{config: {{num_hidden_layers: 1, {heads}}}}}\n"
    found = dataclasses.replace(host(tmp_path, facts), gpu=BY_ID[gpu])
    config = typed_config(found, "linear", {"attention_backend": backend, "page_size": 64})
    said = [one.text for one in contradictions(config, found) if one.text.startswith("engine_attention_b")]
    assert ["no kernels for" in text for text in said] == [True] * refused


def test_draft_settings_do_not_bind_plain_decoding(tmp_path: Path) -> None:
    found = host(tmp_path, FACTS)
    changes = {"draft_window": None, "block_size": 16, "draft_model": None, "extra_args": {"dp-size": 2}}
    assert engine_config(found, "autoregressive", changes).algorithm == "autoregressive"


def test_facts_may_come_from_the_models_own_folder(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    found = host(tmp_path, f"engine_model: {model}\nengine_context_length: 5000\n")
    assert engine_config(found, "autoregressive").context_length == 5000
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    (model / "config.json").write_text(json.dumps({**shape, "max_position_embeddings": 4096}))
    with pytest.raises(UsageError, match="not usable") as caught:
        engine_config(found, "autoregressive")
    assert "knows 4096 positions" in caught.value.cause


def test_a_models_folder_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1]")
    for folder, said in ((str(tmp_path), "not a JSON object"), ("/" + "a" * 5000, "name too long")):
        with pytest.raises(UsageError) as caught:
            engine_config(host(tmp_path, f"engine_model: {folder}\n"), "autoregressive")
        assert said in caught.value.cause


@pytest.mark.parametrize(
    "line",
    [
        "engine_model_facts: 3",
        "engine_model_facts: {config: {}}",
        "engine_model_facts: {config: {num_hidden_layers: -1}}",
        "engine_model_facts: {weight_bytes: many, config: {num_hidden_layers: 1, num_attention_heads: 1}}",
        "engine_draft_facts: {config: {num_hidden_layers: 2, num_attention_heads: 0}}",
    ],
)
def test_malformed_facts_name_their_line(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        engine_config(host(tmp_path, line), "linear")
    assert caught.value.cause.startswith(f"{tmp_path}/fleet.yml:10: engine_")
