"""The sampler on this machine, and the metrics it carries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kdops.host import on_host
from kdops.serving import metrics

pytestmark = pytest.mark.unit

UNIT = "kdtree-no-such-service.service"


def start(tmp_path: Path) -> subprocess.Popen[bytes]:
    places = {name: str(tmp_path / name) for name in ("current", "transaction", "lease", "api_key")}
    command = [sys.executable, "-", json.dumps(places), UNIT, "1", "0.05", "sglang:a,sglang:b"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    process.stdin.write(Path(on_host.__file__).read_bytes())
    process.stdin.close()
    return process


def next_document(process: subprocess.Popen[bytes]) -> dict[str, object]:
    return json.loads(process.stdout.readline())


def test_it_writes_a_document_a_line_and_ends_with_its_reader(tmp_path):
    process = start(tmp_path)
    first, second = next_document(process), next_document(process)
    assert first["unit"] == second["unit"] == UNIT
    assert second["time"] > first["time"]
    assert first["engine"]["health"] is None
    process.stdout.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr.read() == b"", "a reader that goes is no error"
    process.stderr.close()


def test_it_asks_nothing_while_the_load_client_runs(tmp_path):
    folder = tmp_path / "kdops-load.x"
    folder.mkdir()
    process = start(tmp_path)
    try:
        assert "paused" not in next_document(process), "a folder left behind is no measurement"
        client = subprocess.Popen(
            [sys.executable, "-c", "input()", str(folder / "load.pyz")], stdin=subprocess.PIPE
        )
        documents = iter(lambda: next_document(process), None)
        paused = next(told for told in documents if "paused" in told)
        assert set(paused) == {"paused", "time"}
        client.communicate(b"\n")
        assert "unit" in next(told for told in documents if "paused" not in told)
    finally:
        process.stdout.close()
        process.wait(timeout=20)
        process.stderr.close()


TEXT = """\
# TYPE kdtree_commit_length histogram
kdtree_commit_length_sum 30.0
kdtree_commit_length_bucket{le="1.0"} 4.0
kdtree_commit_length_bucket{le="2.0"} 9.0
kdtree_commit_length_bucket{le="3.0"} 12.0
kdtree_commit_length_bucket{le="+Inf"} 12.0
kdtree_commit_length_count 12.0
# TYPE sglang:token_usage gauge
sglang:token_usage{tp_rank="0"} 0.25
sglang:num_used_tokens{tp_rank="0"} 2048.0
"""


def test_commit_lengths_and_the_pool():
    found = metrics.parse(TEXT)
    assert found.commits == (4, 5, 3)
    assert (found.kv_use, found.kv_tokens) == (0.25, 2048)


def test_what_the_sampler_carries_is_enough():
    kept = "\n".join(line for line in TEXT.splitlines() if line.startswith(metrics.SHOWN)) + "\n"
    assert len(kept) < len(TEXT)
    assert metrics.parse(kept) == metrics.parse(TEXT)


@pytest.mark.parametrize("bounds", [["2.0", "3.0"], ["1.0", "3.0"], ["1.0", "nan"], ["1.5"]])
def test_another_engine_s_buckets_are_not_commit_lengths(bounds):
    text = "".join(f'kdtree_commit_length_bucket{{le="{bound}"}} 1\n' for bound in bounds)
    assert metrics.parse(text).commits in ((), (1,))
