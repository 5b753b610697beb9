"""`--ddtree-budget auto` on the real server: whatever the width of a step, plain decoding among them, greedy
tokens are those of plain decoding."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness import Engine, EngineHome, plugged, speculative, start
from test_equality import (
    BLOCK,
    Plain,
    ask_all,
    ask_logprobs,
    ask_special,
    check_abort,
    check_logprobs,
    prompts,
)
from test_equality import plain as plain

pytestmark = [pytest.mark.engine, pytest.mark.matrix]
WIDTHS = {1, 8, 16, 32}


def choices(engine: Engine) -> dict[int, float]:
    """Rounds by width, from /metrics."""
    found: dict[int, float] = {}
    pattern = r'^kdtree_budget_choice_total\{budget="(\d+)",.*\} ([\d.e+]+)$'
    for budget, rounds in re.findall(pattern, engine.request("/metrics")[1], re.MULTILINE):
        found[int(budget)] = found.get(int(budget), 0) + float(rounds)
    return found


def test_two_ranks_take_the_same_width_at_every_step(
    engine_home: EngineHome, models: Path, tmp_path: Path, plain: Plain
) -> None:
    """The policy itself chooses, from two processes' clocks; the ranks compare every step."""
    flags = speculative(models, "DDTREE", ddtree_budget="auto", chunked_prefill_size=64, tp_size=2)
    environment = {"KDTREE_CHECK_RANKS": "1", "SGLANG_CPU_OMP_THREADS_BIND": "0|1"}
    with start(engine_home, tmp_path, flags, **environment) as engine:
        engine.await_ready()
        answers = ask_all(engine, prompts(models))
        assert [answer["output_ids"] for answer in answers] == plain.tokens
        assert ask_special(engine, models) == plain.special
        found = choices(engine)
        assert set(found) <= WIDTHS
        assert len(found) > 1
        assert "invariant broken" not in engine.log.read_text()


@pytest.mark.parametrize("page_size", [1, 16])
def test_tokens_stay_the_same_while_the_width_changes(
    engine_home: EngineHome, models: Path, tmp_path: Path, plain: Plain, page_size: int
) -> None:
    home = plugged(engine_home, tmp_path / "site", "kdtree_widths")
    flags = speculative(models, "DDTREE", ddtree_budget="auto", chunked_prefill_size=64, page_size=page_size)
    with start(home, tmp_path, flags, KDTREE_WIDTHS="1") as engine:
        engine.await_ready()
        answers = ask_all(engine, prompts(models))
        assert [answer["output_ids"] for answer in answers] == plain.tokens
        again = ask_all(engine, prompts(models)[:6])
        assert [answer["output_ids"] for answer in again] == plain.tokens[:6]
        assert any(answer["meta_info"]["cached_tokens"] > 0 for answer in again)
        assert ask_special(engine, models) == plain.special
        check_logprobs(ask_logprobs(engine, models), plain.logprobs)
        check_abort(engine, models, plain)
        found = choices(engine)
        assert set(found) == WIDTHS
        assert min(found.values()) > 100
        for answer in answers:  # a plain step is no verify step; the rest adds up
            meta = answer["meta_info"]
            committed = meta["spec_verify_ct"] + meta["spec_num_correct_drafts"] + meta["spec_plain_steps"]
            assert sum(meta["spec_correct_drafts_histogram"]) == meta["spec_verify_ct"]
            assert 0 <= 1 + committed - meta["completion_tokens"] < BLOCK
        log = engine.log.read_text()
        assert "invariant broken" not in log
        assert re.search(r"DDTREE metrics: .* avg_commit_len=[2-9]", log)
        shown = json.loads(engine.request("/server_info")[1])
        assert (shown["ddtree_budget"], set(shown["ddtree_auto"])) == ("auto", WIDTHS)
