"""The load client as it runs on a host: the zipapp as a process, against the replay server on loopback."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.bench.client import command, job, parse, zipapp
from kdops.bench.leg import analyse
from kdops.bench.workloads import Request, Stage
from kdops.errors import KdopsError

pytestmark = pytest.mark.unit
REPLAY = Path(__file__).with_name("replay_server.py")


@pytest.fixture
def replay() -> Iterator[Any]:
    started: list[subprocess.Popen[str]] = []

    def start(seconds: float, tokens: int) -> int:
        command = [sys.executable, str(REPLAY), str(seconds), str(tokens)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(server)
        assert server.stdout is not None
        return int(server.stdout.readline())

    yield start
    for server in started:
        server.communicate(timeout=10)


def client(tmp_path: Path, port: int, *stages: Stage) -> list[dict[str, Any]]:
    """Run the zipapp with -I: nothing of this environment can help it."""
    (tmp_path / "load.pyz").write_bytes(zipapp())
    (tmp_path / "job.json").write_bytes(job(port, "none", stages))
    command = [sys.executable, "-IBS", tmp_path / "load.pyz", tmp_path / "job.json"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.stderr == b""
    return [json.loads(line) for line in done.stdout.splitlines()]


def samples(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one["sample"] for one in documents if "sample" in one]


ONE = Request("prose/0", "hello", 101)


def test_a_request_is_timed_on_one_clock(tmp_path: Path, replay: Any) -> None:
    told = client(tmp_path, replay(0.01, 4), Stage("prose", (ONE,)))
    (sample,) = samples(told)
    assert sample["meta"]["completion_tokens"] == 101 and sample["first_tokens"] == 1
    assert sample["meta"]["spec_verify_ct"] == 25
    assert len(sample["gaps"]) == 25 and sample["counts"] == [1 + 4 * i for i in range(26)]
    assert sample["decode_seconds"] == pytest.approx(0.25, abs=0.04)
    assert sample["seconds"] == pytest.approx(sample["ttft"] + sample["decode_seconds"], abs=1e-6)
    assert sample["output_ids"] == list(range(101))
    stage = next(one["stage"] for one in told if "stage" in one)
    assert stage["before"].split()[1] == "0.0" and stage["after"].split()[1] == "1.0"


def test_the_client_is_cheap_at_1000_tokens_a_second(tmp_path: Path, replay: Any) -> None:
    told = client(tmp_path, replay(0.004, 4), Stage("prose", (replace(ONE, tokens=3001),)))
    (sample,) = samples(told)
    end = told[-1]["end"]
    assert 3000 / sample["decode_seconds"] > 800
    assert end["cpu_seconds"] / end["wall_seconds"] < 0.05


def test_the_client_adds_under_a_millisecond_to_a_request(tmp_path: Path, replay: Any) -> None:
    requests = tuple(Request(f"prose/{i}", "hello", 1) for i in range(50))
    told = client(tmp_path, replay(0.0, 1), Stage("prose", requests))
    assert len(samples(told)) == 50
    assert told[-1]["end"]["cpu_seconds"] / 50 < 0.001


def test_64_streams_at_once(tmp_path: Path, replay: Any) -> None:
    requests = tuple(Request(f"many/{i}", "hello", 41) for i in range(64))
    told = client(tmp_path, replay(0.05, 4), Stage("many", requests, 64))
    found = samples(told)
    assert {one["key"] for one in found} == {f"many/{i}" for i in range(64)}
    assert all(one["meta"]["completion_tokens"] == 41 for one in found)
    # one after another they would take 64 × 0.5 s
    assert told[-1]["end"]["wall_seconds"] < 5


def test_open_loop_requests_start_at_their_own_times(tmp_path: Path, replay: Any) -> None:
    requests = tuple(Request(f"open/{i}", "hello", 41) for i in range(8))
    starts = tuple(0.05 * i for i in range(8))
    told = client(tmp_path, replay(0.2, 4), Stage("open-loop-20", requests, 8, starts))
    found = sorted(samples(told), key=lambda one: one["began"])
    assert [one["key"] for one in found] == [f"open/{i}" for i in range(8)]
    # Each takes two seconds: had one waited for another, the last would start after the first is done.
    assert 0.3 < found[-1]["began"] - found[0]["began"] < found[0]["seconds"]
    assert all(one["late"] >= 0 for one in found)


def test_a_client_that_nobody_listens_to_ends_and_leaves_nothing(tmp_path: Path, replay: Any) -> None:
    folder = tmp_path / "kdops-load.x"
    folder.mkdir()
    (folder / "load.pyz").write_bytes(zipapp())
    requests = tuple(Request(f"open/{i}", "hello", 41) for i in range(400))
    stage = Stage("open-loop-20", requests, 8, tuple(0.05 * i for i in range(400)))
    (folder / "job.json").write_bytes(job(replay(0.0, 4), "none", (stage,), gpus=False))
    started = subprocess.Popen(command(str(folder), "job"), stdout=subprocess.PIPE)
    assert started.stdout is not None and b"sample" in started.stdout.readline()
    started.stdout.close()
    assert started.wait(timeout=10) != 0, "twenty seconds of requests were to come"
    assert not folder.exists()


def test_plain_steps_of_an_auto_arm_come_with_the_sample(tmp_path: Path, replay: Any) -> None:
    asked = Request("prose/0", "auto", 44)
    found = samples(client(tmp_path, replay(0.001, 4), Stage("prose", (asked,))))
    leg = analyse("ddtree", 0, speculates=True, samples=found, evidence={})
    assert not [one for one in leg.findings if one.title == "a request cannot be used"]
    assert (leg.stages["prose"].steps, leg.stages["prose"].plain) == (10, 3)


def test_margins_are_of_the_best_token_above_the_second(tmp_path: Path, replay: Any) -> None:
    asked = Request("prose/0", "hello", 5, margins=True)
    (sample,) = samples(client(tmp_path, replay(0.0, 4), Stage("prose", (asked,))))
    assert sample["margins"] == [0.25] * 5
    (plain,) = samples(client(tmp_path, replay(0.0, 4), Stage("prose", (ONE,))))
    assert "margins" not in plain


def test_a_prompt_is_padded_to_the_token(tmp_path: Path, replay: Any) -> None:
    told = client(tmp_path, replay(0.0, 4), Stage("context", (Request("context/777", "abc", 5, 777),)))
    assert samples(told)[0]["meta"]["prompt_tokens"] == 777


def test_a_refused_request_is_a_sample_with_the_engines_words(tmp_path: Path, replay: Any) -> None:
    told = client(tmp_path, replay(0.0, 4), Stage("prose", (Request("prose/0", "broken", 5), ONE)))
    refused, fine = samples(told)
    assert "HTTP 400" in refused["error"] and "longer than the context" in refused["error"]
    assert "error" not in fine


def test_no_meta_info_is_told_as_such(tmp_path: Path, replay: Any) -> None:
    (sample,) = samples(client(tmp_path, replay(0.0, 4), Stage("p", (Request("p/0", "bare", 5),))))
    assert sample["meta"] == {}


def test_no_engine_ends_the_client_with_a_reason(tmp_path: Path) -> None:
    told = client(tmp_path, 1, Stage("prose", (ONE,)))
    assert "refused" in told[-1]["failed"]


def test_an_engine_busy_with_others_is_waited_for_and_then_named(tmp_path: Path) -> None:
    asked = []

    class Busy(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(400)
            self.end_headers()
            self.wfile.write(b"Timed out waiting for idle state.")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Busy) as server:
        threading.Thread(target=server.handle_request).start()
        (told,) = client(tmp_path, server.server_port, Stage("prose", (ONE,)))
    assert asked == ["/flush_cache?timeout=30"]
    assert "HTTP 400: Timed out waiting for idle state. Requests of others" in told["failed"]


def test_a_failure_on_the_host_is_an_error_here() -> None:
    for line, said in ((b'{"failed": "no flush"}\n', "no flush"), (b"Traceback\n", "Traceback")):
        with pytest.raises(KdopsError) as caught:
            list(parse(iter([line]), "lab0"))
        assert said in caught.value.cause


@given(st.lists(st.dictionaries(st.text(), st.integers())), st.integers(1, 7))
def test_documents_arrive_whole_however_the_bytes_are_cut(documents: list[dict[str, int]], size: int) -> None:
    documents = [{key: value for key, value in one.items() if key != "failed"} for one in documents]
    raw = b"".join(json.dumps(one).encode() + b"\n" for one in documents)
    pieces = (raw[i : i + size] for i in range(0, len(raw), size))
    assert list(parse(pieces, "lab0")) == documents
