"""Equality on a target that no drafter was trained for: the draft is replayed, with errors."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from harness import REPLAY, EngineHome, plugged, speculative, start, tiny_pair
from test_equality import acceptance_length, ask_all, check_steps, prompts

pytestmark = [pytest.mark.engine, pytest.mark.matrix]


@pytest.mark.parametrize("family", ["llama", "deepseek"])
def test_another_family_under_a_replayed_draft(
    engine_home: EngineHome, models: Path, tmp_path: Path, family: str
) -> None:
    """Grouped heads, and latent attention with experts. The drafter itself knows neither: what DFLASH drafts
    is wrong, what DDTREE drafts is replayed."""
    target = tmp_path / family
    subprocess.run(
        [*engine_home.python, str(REPLAY / f"make_{family}.py"), str(models / "target"), str(target)],
        env=engine_home.environment(),
        check=True,
    )
    asked = prompts(models)[:12]
    usual = {"chunked_prefill_size": 64, "page_size": 16}
    folders = [tmp_path / name for name in ("plain", "linear", "tree")]
    for folder in folders:
        folder.mkdir()
    home = plugged(engine_home, tmp_path / "site", "kdtree_replay")
    flags = {**tiny_pair(models, **usual), "model-path": str(target)}
    with start(home, folders[0], flags) as engine:
        engine.await_ready()
        expected = [answer["output_ids"] for answer in ask_all(engine, asked)]
        tokenized = [
            json.loads(engine.request("/tokenize", {"prompt": text})[1])["tokens"] for text, _ in asked
        ]
    assert len({tuple(tokens) for tokens in expected}) > 6

    flags = {**speculative(models, "DFLASH", **usual), "model-path": str(target)}
    with start(home, folders[1], flags) as engine:
        engine.await_ready()
        assert [answer["output_ids"] for answer in ask_all(engine, asked)] == expected

    records = tmp_path / "records.json"
    answers = zip(tokenized, expected, strict=True)
    records.write_text(json.dumps({"plain": [{"input_ids": i, "output_ids": o} for i, o in answers]}))
    flags = {**speculative(models, "DDTREE", ddtree_budget=24, **usual), "model-path": str(target)}
    with start(home, folders[2], flags, KDTREE_REPLAY=str(records)) as engine:
        engine.await_ready()
        answers = ask_all(engine, asked)
        assert [answer["output_ids"] for answer in answers] == expected
        check_steps(answers)
        assert acceptance_length(answers) > 3
        metrics = engine.request("/metrics")[1]
        siblings = [line for line in metrics.splitlines() if 'kdtree_accepted_rank_total{rank="1"}' in line]
        assert float(siblings[0].split()[-1]) > 0
