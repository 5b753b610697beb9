"""What DDTREE makes of SGLang's settings on a GPU, seen here without one."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kdtree_engine.options import Options, RefusedError
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


def started(**flags: Any) -> Any:
    """The server arguments of the tiny pair, as from a command line with these flags."""
    from sglang.srt.server_args import ServerArgs

    models = Path(__file__).parents[3] / "models" / "tiny-pair"
    parser = argparse.ArgumentParser()
    registration.add_cli_args(ServerArgs.add_cli_args, parser)
    named = {
        "model-path": models / "target",
        "speculative-draft-model-path": models / "drafter",
        "speculative-algorithm": "DDTREE",
    } | {name.replace("_", "-"): value for name, value in flags.items()}
    args = parser.parse_args([word for name, value in named.items() for word in (f"--{name}", str(value))])
    return registration.from_cli_args(lambda _cls, _args: SimpleNamespace(), object, args)


@pytest.mark.usefixtures("algorithm")
def test_the_pair_is_judged_by_its_own_configs() -> None:
    assert registration.options_of(started()).block_size == 8
    assert (
        registration.options_of(started(context_length=8193, speculative_draft_window_size=64)).budget == 16
    )
    with pytest.raises(RefusedError, match="knows 8192 positions, but context-length is 8193"):
        started(context_length=8193)
    with pytest.raises(RefusedError, match="number of target layers is 6, but the target has 7"):
        started(json_model_override_args='{"num_hidden_layers": 7}')
