"""Equality on a target that no drafter was trained for: the draft is replayed, with errors."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from harness import EngineHome, speculative, start, tiny_pair
from test_equality import acceptance_length, ask_all, check_steps, prompts

pytestmark = [pytest.mark.engine, pytest.mark.matrix]
REPLAY = Path(__file__).parent / "replay"


def replaying(home: EngineHome, folder: Path) -> EngineHome:
    """The same engine with the replay plugin installed beside it."""
    info = folder / "kdtree_replay-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kdtree-replay\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nreplay = kdtree_replay:register\n")
    (folder / "kdtree_replay.py").write_text((REPLAY / "kdtree_replay.py").read_text())
    for entry in home.site.iterdir():
        (folder / entry.name).symlink_to(entry)
    return replace(home, site=folder)


def test_llama_under_a_replayed_draft(engine_home: EngineHome, models: Path, tmp_path: Path) -> None:
    llama = tmp_path / "llama"
    subprocess.run(
        [*engine_home.python, str(REPLAY / "make_llama.py"), str(models / "target"), str(llama)],
        env=engine_home.environment(),
        check=True,
    )
    asked = prompts(models)[:12]
    plain_folder, tree_folder = tmp_path / "plain", tmp_path / "tree"
    plain_folder.mkdir()
    tree_folder.mkdir()
    with start(engine_home, plain_folder, {**tiny_pair(models), "model-path": str(llama)}) as engine:
        engine.await_ready()
        expected = [answer["output_ids"] for answer in ask_all(engine, asked)]
        tokenized = [
            json.loads(engine.request("/tokenize", {"prompt": text})[1])["tokens"] for text, _ in asked
        ]
    assert len({tuple(tokens) for tokens in expected}) > 6
    records = tmp_path / "records.json"
    records.write_text(json.dumps(list(zip(tokenized, expected, strict=True))))

    home = replaying(engine_home, tmp_path / "site")
    flags = speculative(models, "DDTREE", ddtree_budget=24, page_size=16)
    environment = {"KDTREE_REPLAY": str(records)}
    with start(home, tree_folder, {**flags, "model-path": str(llama)}, **environment) as engine:
        engine.await_ready()
        answers = ask_all(engine, asked)
        assert [answer["output_ids"] for answer in answers] == expected
        check_steps(answers)
        assert acceptance_length(answers) > 3
        metrics = engine.request("/metrics")[1]
        siblings = [line for line in metrics.splitlines() if 'kdtree_accepted_rank_total{rank="1"}' in line]
        assert float(siblings[0].split()[-1]) > 0
