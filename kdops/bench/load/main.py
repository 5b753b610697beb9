"""Runs a job file: stages of requests, one NDJSON line on stdout for each as it ends.

`python3 load.pyz JOB`. A stage flushes the prefix cache (200 required), reads the counters, keeps
`concurrency` requests running, or starts each at its own time (`starts`, seconds: open loop, whatever the
engine still has to do), reads the counters again. The last line tells what the client itself cost.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kdops.bench.load.gpu_watch import GpuWatch
from kdops.bench.load.stream import Endpoint, stream

_TICK = 0.01
_IDLE_WITHIN = 30
_lock = threading.Lock()
_Pair = tuple[Mapping[str, Any], dict[str, Any]]


def tell(document: Mapping[str, Any]) -> None:
    """Write one line, at once. A value that is no number (NaN) is written as null."""
    line = json.dumps(_finite(document), allow_nan=False)
    try:
        with _lock:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    except BrokenPipeError:  # nobody listens any more: no thread may go on sending
        os._exit(1)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and (value != value or abs(value) == float("inf")) else value


class Punctuality:
    """How late a thread of this process wakes up: the client's own disturbance."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            if self._stop.wait(_TICK):
                return
            self._late.append(max(0.0, time.perf_counter() - before - _TICK))

    def end(self) -> float:
        """Return the 95th percentile in seconds."""
        self._stop.set()
        self._thread.join()
        late = sorted(self._late) or [0.0]
        return late[int(0.95 * (len(late) - 1))]


def padded(endpoint: Endpoint, text: str, tokens: int) -> list[int]:
    """Return exactly `tokens` ids of `text` repeated, by the server's own tokenizer. Raises ValueError."""
    status, content = endpoint.call("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})
    try:
        ids = json.loads(content)["tokens"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"/tokenize answers HTTP {status} without tokens") from error
    if not isinstance(ids, list) or not ids:
        raise ValueError("the text to pad with has no token")
    return (ids * (tokens // len(ids) + 1))[:tokens]


def _body(endpoint: Endpoint, request: Mapping[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {"sampling_params": request["sampling"]}
    if request.get("margins"):
        body |= {"return_logprob": True, "top_logprobs_num": 2}
    if request.get("pad_to"):
        return {**body, "input_ids": padded(endpoint, request["text"], request["pad_to"])}
    return {**body, "text": request["text"]}


def run_stage(endpoint: Endpoint, stage: Mapping[str, Any]) -> None:
    """Run the requests of one stage in their order, `concurrency` at a time."""
    bodies = [(request, _body(endpoint, request)) for request in stage["requests"]]
    # SGLang flushes between requests only; it waits for the end of one of somebody else's.
    status, content = endpoint.call("POST", f"/flush_cache?timeout={_IDLE_WITHIN}")
    if status != 200:
        answer = content[:200].decode(errors="replace").strip()
        raise ValueError(
            f"the prefix cache was not flushed, HTTP {status}: {answer} "
            f"Requests of others may have kept the engine busy for {_IDLE_WITHIN} s."
        )
    before = endpoint.call("GET", "/metrics")[1].decode(errors="replace")
    began = time.perf_counter()
    if starts := stage.get("starts"):
        _open_loop(endpoint, stage["name"], bodies, starts)
    else:
        _closed_loop(endpoint, stage["name"], bodies, stage["concurrency"])
    seconds = time.perf_counter() - began
    after = endpoint.call("GET", "/metrics")[1].decode(errors="replace")
    ended = {"name": stage["name"], "requests": len(bodies), "seconds": seconds}
    tell({"stage": {**ended, "before": before, "after": after}})


def _closed_loop(endpoint: Endpoint, name: str, bodies: list[_Pair], concurrency: int) -> None:
    waiting: queue.SimpleQueue[_Pair] = queue.SimpleQueue()
    for pair in bodies:
        waiting.put(pair)

    def work() -> None:
        while True:
            try:
                request, body = waiting.get_nowait()
            except queue.Empty:
                return
            _measure(endpoint, name, request, body)

    _together([threading.Thread(target=work) for _ in range(min(concurrency, len(bodies)))])


def _open_loop(endpoint: Endpoint, name: str, bodies: list[_Pair], starts: list[float]) -> None:
    began = time.perf_counter()

    def work(request: Mapping[str, Any], body: dict[str, Any], due: float) -> None:
        time.sleep(max(0.0, due - time.perf_counter()))
        _measure(endpoint, name, request, body, late=time.perf_counter() - due)

    pairs = zip(bodies, starts, strict=True)
    _together([threading.Thread(target=work, args=(*pair, began + start)) for pair, start in pairs])


def _together(workers: list[threading.Thread]) -> None:
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _measure(
    endpoint: Endpoint, stage: str, request: Mapping[str, Any], body: dict[str, Any], **told: float
) -> None:
    sample = stream(endpoint, body)
    asked = request["sampling"].get("max_new_tokens")
    tell({"sample": {"key": request["key"], "stage": stage, "asked": asked, **told, **sample}})


def main(argv: list[str]) -> int:
    """Run the job; exit status 1 with a last line {"failed": why} when the engine cannot be measured."""
    job = json.loads(Path(argv[1]).read_text())
    key = Path(job["key_file"])
    endpoint = Endpoint(job["address"], job["port"], key.read_text().strip() if key.is_file() else "")
    punctuality = Punctuality()
    gpus = GpuWatch() if job["gpus"] else None
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        for stage in job["stages"]:
            run_stage(endpoint, stage)
    except (ValueError, OSError) as error:
        tell({"failed": f"{error}"[:500]})
        return 1
    finally:
        seen = gpus.end() if gpus else None
    cost = {"cpu_seconds": time.process_time() - cpu, "wall_seconds": time.perf_counter() - wall}
    tell({"end": {**cost, "late_seconds": punctuality.end(), "gpus": seen}})
    return 0
