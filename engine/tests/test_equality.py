"""Losslessness on the real server: greedy fp32 output is the same, token for token, whatever speculates."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from harness import Engine, EngineHome, speculative, start, tiny_pair

pytestmark = pytest.mark.engine

Answers = list[dict[str, Any]]
BLOCK = 8


def prompts(models: Path) -> list[tuple[str, int]]:
    """24 prompts and how many tokens to generate: four kinds of text, shared prefixes, some past a prefill
    chunk.
    """
    by_kind = json.loads((models / "prompts.json").read_text())["test"]
    chosen: list[tuple[str, int]] = []
    for texts in by_kind.values():
        first, second, third = (
            prompt["text"] if isinstance(prompt, dict) else prompt for prompt in texts[:3]
        )
        shared = first[: len(first) * 3 // 4]
        chosen += [(first, 200), (second, 96), (third[:40], 64)]
        chosen += [(shared, 96), (shared + second[:60], 33), (shared + third[:60], 130)]
    assert len(chosen) == 24
    return chosen


def ask_all(engine: Engine, asked: list[tuple[str, int]]) -> Answers:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda pair: engine.generate(*pair), asked))


def check_steps(answers: Answers, block: int = BLOCK) -> None:
    """Every request's counters add up: committed = accepted + steps, all of it in the answer but what a stop
    cut.
    """
    for answer in answers:
        meta = answer["meta_info"]
        histogram, steps = meta["spec_correct_drafts_histogram"], meta["spec_verify_ct"]
        accepted = meta["spec_num_correct_drafts"]
        assert sum(histogram) == steps
        assert sum(count * steps_ for count, steps_ in enumerate(histogram)) == accepted
        cut = 1 + accepted + steps - meta["completion_tokens"]
        assert 0 <= cut < block


def acceptance_length(answers: Answers) -> float:
    steps = sum(answer["meta_info"]["spec_verify_ct"] for answer in answers)
    return 1 + sum(answer["meta_info"]["spec_num_correct_drafts"] for answer in answers) / steps


@pytest.fixture(scope="module")
def reference(
    engine_home: EngineHome, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[list[int]]:
    """The tokens of plain decoding."""
    folder = tmp_path_factory.mktemp("autoregressive")
    with start(engine_home, folder, tiny_pair(models, chunked_prefill_size=64)) as engine:
        engine.await_ready()
        return [answer["output_ids"] for answer in ask_all(engine, prompts(models))]


def test_prompts_are_answered_differently(reference: list[list[int]]) -> None:
    """The comparison below means something only if the answers are not all alike."""
    assert len({tuple(tokens[:33]) for tokens in reference}) > 12


ARMS = {
    "linear": {"algorithm": "DFLASH"},
    "ddtree": {"algorithm": "DDTREE", "ddtree_budget": 16},
}


@pytest.mark.parametrize(("arm", "page_size"), list(itertools.product(ARMS, [1, 16])))
def test_greedy_tokens_are_those_of_plain_decoding(
    engine_home: EngineHome,
    models: Path,
    tmp_path: Path,
    reference: list[list[int]],
    arm: str,
    page_size: int,
) -> None:
    flags = speculative(models, chunked_prefill_size=64, page_size=page_size, **ARMS[arm])
    with start(engine_home, tmp_path, flags) as engine:
        engine.await_ready()
        answers = ask_all(engine, prompts(models))
        assert [answer["output_ids"] for answer in answers] == reference
        check_steps(answers)
        assert acceptance_length(answers) > 2
        again = ask_all(engine, prompts(models)[:6])
        assert [answer["output_ids"] for answer in again] == reference[:6]
        assert any(answer["meta_info"]["cached_tokens"] > 0 for answer in again)
        if arm == "ddtree":
            check_tree_server(engine)


def check_tree_server(engine: Engine) -> None:
    """What only the tree's server has: sampling on a CPU, its log line, its settings; all on one start."""
    sampled = {engine.generate("def", 24, temperature=1.0, top_k=8)["text"] for _ in range(4)}
    assert len(sampled) > 1
    capped = engine.generate("def f(x):\n", 5)
    assert capped["meta_info"]["completion_tokens"] == 5
    lines = [line for line in engine.log.read_text().splitlines() if "DDTREE metrics:" in line]
    assert lines
    for line in lines:
        values = dict(pair.split("=") for pair in line.partition("DDTREE metrics: ")[2].split())
        drafts, commits = float(values["avg_accepted_drafts"]), float(values["avg_commit_len"])
        assert commits == pytest.approx(drafts + 1, abs=0.011)
        assert values["avg_accepted_depth"] == values["avg_accepted_drafts"]
        assert (values["budget"], values["avg_actual_nodes"]) == ("16", "16.00")
    assert "invariant broken" not in engine.log.read_text()
    shown = json.loads(engine.request("/server_info")[1])
    assert (shown["ddtree_budget"], shown["ddtree_topk_cap"]) == (16, 4)


def test_a_wide_tree_with_spine_and_draft_window(
    engine_home: EngineHome, models: Path, tmp_path: Path, reference: list[list[int]]
) -> None:
    flags = speculative(
        models,
        "DDTREE",
        chunked_prefill_size=64,
        ddtree_budget=32,
        ddtree_topk_cap=8,
        ddtree_keep_spine=True,
        speculative_draft_window_size=64,
    )
    with start(engine_home, tmp_path, flags) as engine:
        engine.await_ready()
        answers = ask_all(engine, prompts(models))
        assert [answer["output_ids"] for answer in answers] == reference
        check_steps(answers)
