"""What DDTREE makes of SGLang's settings on a GPU, seen here without one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kdtree_engine.options import EAGER, Options, RefusedError
from kdtree_engine.sglang import registration


@pytest.fixture
def algorithm() -> Any:
    from sglang.srt.speculative.spec_registry import get_spec

    if get_spec("DDTREE") is None:
        registration.register_algorithm()
    return get_spec("DDTREE")


def server(graphs: str = "full", *, sizes: tuple[int, ...] = (1, 8), requests: int | None = None) -> Any:
    return SimpleNamespace(
        _ddtree_options=Options(block_size=8, budget=16, topk_cap=4, keep_spine=False),
        device="cuda",
        attention_backend="triton",
        decode_attention_backend=None,
        prefill_attention_backend=None,
        speculative_draft_attention_backend=None,
        attn_dp_size=1,
        enable_deterministic_inference=False,
        cuda_graph_config=SimpleNamespace(decode=SimpleNamespace(backend=graphs, bs=list(sizes))),
        disable_cuda_graph_padding=False,
        max_running_requests=requests,
    )


def test_no_more_requests_than_the_graphs_take_unless_told(algorithm: Any) -> None:
    for sizes, expected in (((1, 8), 8), ((1, 8, 160), 48)):
        settings = server(sizes=sizes)
        algorithm.handle_server_args(settings)
        assert settings.max_running_requests == expected
    assert (settings.speculative_num_draft_tokens, settings.speculative_num_steps) == (16, 7)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (server("disabled"), "batches of 1 to 48 requests would be verified without a CUDA graph"),
        (server(requests=32), "batches of 9 to 32 requests"),
    ],
)
def test_verifying_without_a_graph_is_refused_unless_asked_for(
    algorithm: Any, monkeypatch: pytest.MonkeyPatch, settings: Any, words: str
) -> None:
    with pytest.raises(RefusedError, match=words):
        algorithm.handle_server_args(settings)
    monkeypatch.setenv(EAGER, "1")
    algorithm.handle_server_args(settings)
