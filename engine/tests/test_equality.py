"""Losslessness on the real server: greedy fp32 output is the same, token for token, whatever speculates."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import shutil
import time
from dataclasses import dataclass
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


def ask_all(engine: Engine, asked: list[tuple[str, int]], *, at_once: int = 8) -> Answers:
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
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


def special(usual: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What changes or cuts an answer, made from the usual one so that stops fall inside accepted paths."""
    text, ids = usual["text"], usual["output_ids"]
    middle = len(text) // 2
    return {
        "stop string": {"stop": [text[middle : middle + 4]]},
        "stop token": {"stop_token_ids": [ids[21]], "ignore_eos": False},
        "length": {"max_new_tokens": 3},
        "one token": {"max_new_tokens": 1},
        "frequency penalty": {"frequency_penalty": 2.0},
        "presence penalty": {"presence_penalty": 2.0},
        "repetition penalty": {"repetition_penalty": 1.5},
        "grammar": {"regex": "[a-z]+( [a-z]+){5}\\.", "ignore_eos": False},
        "bias": {"logit_bias": {str(ids[0]): -100.0}},
    }


def ask_special(engine: Engine, models: Path) -> dict[str, list[int]]:
    """The output tokens of the usual answer and every special case; all at once, sharing batches."""
    text = prompts(models)[6][0]
    usual = engine.generate(text, 48)
    cases = special(usual)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda case: engine.generate(text, 48, **case), cases.values())
        named = zip(cases, found, strict=True)
        return {"usual": usual["output_ids"]} | {name: answer["output_ids"] for name, answer in named}


def ask_logprobs(engine: Engine, models: Path) -> list[tuple[float, int]]:
    """Log-probability and id of every output token."""
    body = {
        "text": prompts(models)[0][0],
        "sampling_params": {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True},
        "return_logprob": True,
    }
    status, text = engine.request("/generate", body)
    assert status == 200, text
    found: list[tuple[float, int]] = [
        (logprob, token) for logprob, token, _ in json.loads(text)["meta_info"]["output_token_logprobs"]
    ]
    return found


@dataclass(frozen=True)
class Plain:
    """Plain decoding: tokens of `prompts`, of `special` cases, log-probabilities."""

    tokens: list[list[int]]
    special: dict[str, list[int]]
    logprobs: list[tuple[float, int]]


@pytest.fixture(scope="module")
def plain(engine_home: EngineHome, models: Path, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    folder = tmp_path_factory.mktemp("autoregressive")
    # With overlap SGLang counts a token for penalties one step late.
    flags = tiny_pair(models, chunked_prefill_size=64, disable_overlap_schedule=True)
    with start(engine_home, folder, flags) as engine:
        engine.await_ready()
        tokens = [answer["output_ids"] for answer in ask_all(engine, prompts(models))]
        return Plain(tokens, ask_special(engine, models), ask_logprobs(engine, models))


@pytest.fixture
def reference(plain: Plain) -> list[list[int]]:
    return plain.tokens


def test_special_requests_are_answered_differently(plain: Plain) -> None:
    """The comparison means something only if each of them changes the answer."""
    usual = plain.special["usual"]
    assert [name for name, tokens in plain.special.items() if tokens == usual] == ["usual"]


ARMS = {
    "linear": {"algorithm": "DFLASH"},
    "ddtree": {"algorithm": "DDTREE", "ddtree_budget": 16},
}


@pytest.mark.parametrize(("arm", "page_size"), list(itertools.product(ARMS, [1, 16])))
def test_greedy_tokens_are_those_of_plain_decoding(
    engine_home: EngineHome,
    models: Path,
    tmp_path: Path,
    plain: Plain,
    arm: str,
    page_size: int,
) -> None:
    flags = speculative(models, chunked_prefill_size=64, page_size=page_size, **ARMS[arm])
    with start(engine_home, tmp_path, flags) as engine:
        engine.await_ready()
        answers = ask_all(engine, prompts(models))
        assert [answer["output_ids"] for answer in answers] == plain.tokens
        check_steps(answers)
        assert acceptance_length(answers) > 2
        again = ask_all(engine, prompts(models)[:6])
        assert [answer["output_ids"] for answer in again] == plain.tokens[:6]
        assert any(answer["meta_info"]["cached_tokens"] > 0 for answer in again)
        if arm == "ddtree":
            assert ask_special(engine, models) == plain.special
            check_logprobs(ask_logprobs(engine, models), plain.logprobs)
            check_abort(engine, models, plain)
            check_tree_server(engine)


def check_logprobs(found: list[tuple[float, int]], expected: list[tuple[float, int]]) -> None:
    assert [token for _, token in found] == [token for _, token in expected]
    assert [value for value, _ in found] == pytest.approx([value for value, _ in expected], abs=1e-3)


def check_abort(engine: Engine, models: Path, plain: Plain) -> None:
    """Requests cut off in the middle leave nothing behind that changes the next answers."""
    body = {"text": prompts(models)[0][0], "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True}}
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        cut = [pool.submit(engine.request, "/generate", {**body, "rid": f"cut-{n}"}) for n in range(3)]
        engine.await_said(
            lambda heard: heard.at > begin and "running=3" in heard.values.get("STATUS", ""), "running=3", 60
        )
        assert engine.request("/abort_request", {"abort_all": True})[0] == 200
        assert all("abort" in one.result()[1] for one in cut)
    answers = ask_all(engine, prompts(models)[:8])
    assert [answer["output_ids"] for answer in answers] == plain.tokens[:8]


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
    check_metrics(engine.request("/metrics")[1])
    shown = json.loads(engine.request("/server_info")[1])
    assert (shown["ddtree_budget"], shown["ddtree_topk_cap"]) == (16, 4)


def check_metrics(text: str) -> None:
    """The counters on /metrics agree with each other, and penalised requests were counted."""

    def value(start: str) -> float:
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(start))

    steps, accepted = value("kdtree_steps_total"), value("kdtree_accepted_rank_total")
    assert steps > 0
    assert value("kdtree_nodes_total") == 16 * steps
    assert value("kdtree_commit_length_count") == steps
    assert value("kdtree_commit_length_sum") == accepted + steps
    assert value("kdtree_accepted_at_total") == accepted
    assert 0 < value('kdtree_accepted_rank_total{rank="0"}') < accepted
    assert value("kdtree_fallback_steps_total") > 0
    assert value("kdtree_broken_steps_total") == 0


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


FURTHER: dict[str, dict[str, Any]] = {
    "page 64": {"page_size": 64},
    "largest tree": {"ddtree_budget": 256, "ddtree_topk_cap": 8},
    "two ranks": {"tp_size": 2},
    "32 at once": {"max_running_requests": 32},
}


@pytest.mark.matrix
@pytest.mark.parametrize("block", [4, 16])
def test_other_block_sizes(
    engine_home: EngineHome, models: Path, tmp_path: Path, reference: list[list[int]], block: int
) -> None:
    """The trained drafter with another block: the weights do not depend on its size, their quality does."""
    drafter = tmp_path / "drafter"
    shutil.copytree(models / "drafter", drafter)
    config = json.loads((drafter / "config.json").read_text())
    (drafter / "config.json").write_text(json.dumps({**config, "block_size": block}))
    flags = speculative(models, "DDTREE", chunked_prefill_size=64, ddtree_budget=24)
    with start(engine_home, tmp_path, {**flags, "speculative-draft-model-path": str(drafter)}) as engine:
        engine.await_ready()
        answers = ask_all(engine, prompts(models))
        assert [answer["output_ids"] for answer in answers] == reference
        check_steps(answers, block)
        assert acceptance_length(answers) > 1.5


@pytest.mark.matrix
@pytest.mark.parametrize("name", FURTHER)
def test_further_setups(
    engine_home: EngineHome, models: Path, tmp_path: Path, reference: list[list[int]], name: str
) -> None:
    flags = speculative(models, "DDTREE", chunked_prefill_size=64, **FURTHER[name])
    with start(engine_home, tmp_path, flags, SGLANG_CPU_OMP_THREADS_BIND="0|1") as engine:
        engine.await_ready()
        answers = ask_all(engine, prompts(models), at_once=32)
        assert [answer["output_ids"] for answer in answers] == reference
        check_steps(answers)
