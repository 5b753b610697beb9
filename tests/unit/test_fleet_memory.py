"""Memory: bytes a token, and the pool they make."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops import fleet
from kdops.fleet import CATALOGUE, facts, memory
from kdops.fleet.gpus import BY_ID

pytestmark = pytest.mark.unit

KIMI = facts.from_config(
    {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "torch_dtype": "bfloat16"},
    weight_bytes=595_000_000_000,
    source="test",
)
QWEN = facts.from_config(
    {
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "dtype": "bfloat16",
    },
    source="test",
)


def test_mla_latent_is_replicated_and_heads_are_divided() -> None:
    assert [KIMI.kv_bytes(tp=tp) for tp in (1, 8)] == [70_272, 70_272]
    assert KIMI.kv_bytes(dtype_bytes=1) == 35_136
    assert [QWEN.kv_bytes(tp=tp) for tp in (1, 2, 4)] == [3_072, 1_536, 1_536]
    assert QWEN.kv_bytes(dtype_bytes=4) == 6_144


def test_nested_text_config_is_read() -> None:
    nested = {
        "model_type": "kimi_k25",
        "text_config": {"num_hidden_layers": 3, "kv_lora_rank": 8, "qk_rope_head_dim": 2},
    }
    assert facts.from_config(nested, source="test").kv_bytes() == 3 * 10 * 2


def predicted(host: str, profile: str, **changes: object) -> memory.Prediction:
    found = fleet.load().one(host)
    config = fleet.engine_config(found, profile, changes)
    target = facts.known(found, config)
    assert target is not None
    return memory.predict(config, found.gpu, target, facts.known(found, config, "engine_draft_facts"))


def test_ct200_holds_its_context_beside_the_drafter() -> None:
    plain, linear = predicted("ct200", "autoregressive"), predicted("ct200", "linear")
    assert plain.kv_bytes_per_token == 70_272
    assert plain.draft_kv_bytes_per_token == 0
    assert linear.draft_kv_bytes_per_token == 5 * 2 * 8 * 128 * 2 // 8
    assert plain.tokens is not None
    assert linear.tokens is not None
    assert 200_000 < linear.tokens < plain.tokens
    free = BY_ID["rtx-pro-6000-blackwell-server"].memory - memory.CONTEXT_BYTES
    assert plain.tokens == (int(free * 0.9) - 595_000_000_000 // 8) // 70_272


def test_lab_pool_is_what_is_asked_for_in_whole_pages() -> None:
    assert predicted("lab", "ddtree").tokens == 8192
    assert (
        predicted("lab", "ddtree", page_size=100, max_total_tokens=8250, context_length=8000).tokens == 8200
    )


@given(
    fraction=st.floats(0.01, 0.99),
    page=st.integers(1, 256),
    tp=st.sampled_from([1, 2, 4, 8]),
    gpu=st.sampled_from([gpu for gpu in CATALOGUE if gpu.memory]),
    facts_of=st.sampled_from([KIMI, dataclasses.replace(QWEN, weight_bytes=10**9)]),
)
def test_prediction_never_exceeds_the_gpu(
    fraction: float, page: int, tp: int, gpu: fleet.Gpu, facts_of: facts.ModelFacts
) -> None:
    base = fleet.engine_config(BASE, "autoregressive")
    config = dataclasses.replace(base, memory_fraction=fraction, page_size=page, tp=tp, context_length=None)
    found = memory.predict(config, gpu, facts_of, None)
    assert found.tokens is not None
    assert found.pool_bytes is not None
    assert found.tokens % page == 0
    assert 0 <= found.tokens * found.kv_bytes_per_token <= found.pool_bytes <= gpu.memory * fraction


BASE = fleet.load(Path(__file__).parents[2] / "inventories" / "b300.yml").one("b300")


def test_catalogue_is_complete() -> None:
    assert {gpu.sm for gpu in CATALOGUE} == {0, 90, 103, 120}
    for gpu in CATALOGUE:
        assert gpu.source
    assert BY_ID["rtx-pro-6000-blackwell-server"].shared_memory == 101_376
