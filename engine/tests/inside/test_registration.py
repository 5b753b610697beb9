"""What DDTREE makes of SGLang's settings on a GPU, seen here without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kdtree_engine.options import Options
from kdtree_engine.sglang import registration


@pytest.fixture
def algorithm() -> Any:
    from sglang.srt.speculative.spec_registry import get_spec

    if get_spec("DDTREE") is None:
        registration.register_algorithm()
    return get_spec("DDTREE")


def server(requests: int | None = None) -> Any:
    return SimpleNamespace(
        _ddtree_options=Options(block_size=8, budget=16, topk_cap=4, keep_spine=False),
        device="cuda",
        attention_backend="triton",
        decode_attention_backend=None,
        prefill_attention_backend=None,
        speculative_draft_attention_backend=None,
        attn_dp_size=1,
        enable_deterministic_inference=False,
        cuda_graph_config=SimpleNamespace(decode=SimpleNamespace(backend="full")),
        max_running_requests=requests,
    )


def test_what_is_unset_is_settled_as_for_stock_dflash(algorithm: Any) -> None:
    for asked, expected in ((None, 48), (96, 96)):
        settings = server(asked)
        algorithm.handle_server_args(settings)
        assert settings.max_running_requests == expected
        assert settings.speculative_draft_attention_backend == "triton"
        assert (settings.speculative_num_draft_tokens, settings.speculative_num_steps) == (16, 7)
