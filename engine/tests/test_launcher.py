"""The launcher as systemd sees it: refusals, READY, watchdog, drain, exit codes, and no key anywhere."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Engine, EngineHome, speculative, start, tiny_pair

pytestmark = pytest.mark.engine

KEY = "sentinel-4711-abcdef"
WATCHDOG = 10.0


def refused(
    home: EngineHome, folder: Path, flags: dict[str, Any], *, key: str | None = None, **environment: str
) -> tuple[int, str]:
    """Exit code and last line of a start that must not get anywhere."""
    with start(home, folder, flags, counted=False, key=key, **environment) as engine:
        code = engine.await_exit(90)
        assert not any("READY" in heard.values for heard in engine.said)
        return code, engine.tail(1)


def test_another_sglang_is_refused_at_once(engine_home: EngineHome, models: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "other" / "sglang-0.5.99.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.99\n")
    path = os.pathsep.join([str(tmp_path / "other"), engine_home.environment()["PYTHONPATH"]])
    code, line = refused(engine_home, tmp_path, tiny_pair(models), PYTHONPATH=path)
    assert code == 64
    assert line == (
        "kdtree: configuration refused: kdtree-engine is made for SGLang 0.5.23; "
        "installed is 0.5.99 (exit 64)"
    )


def test_a_key_in_the_launch_file_is_refused(engine_home: EngineHome, models: Path, tmp_path: Path) -> None:
    code, line = refused(engine_home, tmp_path, tiny_pair(models, api_key=KEY))
    assert code == 64
    assert "systemd credential" in line
    assert KEY not in (tmp_path / "engine.log").read_text()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ddtree_budget": 4}, "ddtree-budget is 4 (root included), less than the block size 8"),
        ({"speculative_dflash_block_size": 16}, "speculative-dflash-block-size is 16, but the drafter has 8"),
        ({"no_such_flag": 1}, "unrecognized arguments: --no-such-flag 1"),
    ],
)
def test_impossible_settings_end_before_weights_load(
    engine_home: EngineHome, models: Path, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    code, line = refused(engine_home, tmp_path, speculative(models, "DDTREE", **changes))
    assert code == 64
    assert words in line
    log = (tmp_path / "engine.log").read_text()
    assert "Load weight" not in log
    assert "Traceback" not in log


def test_a_plugin_that_did_not_load_is_refused(engine_home: EngineHome, models: Path, tmp_path: Path) -> None:
    code, line = refused(engine_home, tmp_path, tiny_pair(models), SGLANG_PLUGINS="kdtree_cpu_support")
    assert code == 65
    assert line.startswith("kdtree: SGLang did not load the kdtree plugin whole, missing: DDTREE")


def secrets_seen(engine: Engine) -> list[str]:
    """Where the key shows up: the log, what SGLang answers, the command line and environment of every
    process.
    """
    places = {"log": engine.log.read_text(), "server_info": engine.request("/server_info")[1]}
    places["model_info"] = engine.request("/model_info")[1]
    for pid in [engine.process.pid, *engine.children("")]:
        for name in ("cmdline", "environ"):
            places[f"{pid} {name}"] = Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    for heard in engine.said:
        places["notifications"] = places.get("notifications", "") + str(heard.values)
    return [place for place, text in places.items() if KEY in text]


def fed_between(engine: Engine, since: float, until: float) -> list[float]:
    return [
        heard.at for heard in list(engine.said) if "WATCHDOG" in heard.values and since <= heard.at <= until
    ]


def long_request(engine: Engine, tokens: int) -> threading.Thread:
    """A generation in the background; returns once it runs."""

    def ask() -> None:
        with contextlib.suppress(OSError, AssertionError):
            answers.append(engine.generate("def f(x):\n", tokens))

    answers: list[Any] = []
    thread = threading.Thread(target=ask, daemon=True)
    thread.answers = answers  # type: ignore[attr-defined]
    began = time.monotonic()
    thread.start()
    engine.await_said(
        lambda heard: heard.at > began and heard.values.get("STATUS", "").startswith("running=1 "),
        "it runs",
        60,
    )
    return thread


def test_a_whole_life(engine_home: EngineHome, models: Path, tmp_path: Path) -> None:
    """READY after a generation; no key shown; a long prefill keeps the watchdog fed; a stop drains."""
    flags = speculative(models, "DDTREE", ddtree_budget=16, chunked_prefill_size=256)
    usec = str(int(WATCHDOG * 1e6))
    with start(
        engine_home, tmp_path, flags, key=KEY, WATCHDOG_USEC=usec, KDTREE_DRAIN_SECONDS="180"
    ) as engine:
        engine.await_ready()
        assert engine.request("/server_info", key=None)[0] == 401
        metrics = engine.request("/metrics", key=None)[1]
        generated = sum(
            float(line.rsplit(" ", 1)[1])
            for line in metrics.splitlines()
            if line.startswith("sglang:generation_tokens_total")
        )
        assert generated >= 16
        phases = [
            heard.values["STATUS"] for heard in engine.said if "phase=" in heard.values.get("STATUS", "")
        ]
        assert all("EXTEND_TIMEOUT_USEC" in heard.values for heard in engine.said[1:5])
        names = list(dict.fromkeys(status.split()[0] for status in phases))
        order = ["phase=imports", "phase=weights", "phase=kv-cache", "phase=graphs", "phase=warm-up"]
        assert names == [name for name in order if name in names]
        assert {"phase=imports", "phase=warm-up"} <= set(names)
        assert "exit" not in engine.tail(3)
        assert secrets_seen(engine) == []

        engine.request("/health")
        assert '"GET /health' not in engine.log.read_text()

        prompt = [10 + i % 3000 for i in range(7000)]
        began = time.monotonic()
        engine.generate(prompt, 2)
        took = time.monotonic() - began
        fed = [began, *fed_between(engine, began, began + took), began + took]
        assert max(later - earlier for earlier, later in itertools.pairwise(fed)) < WATCHDOG

        running = long_request(engine, 2500)
        engine.process.send_signal(signal.SIGTERM)
        engine.await_status(r"^draining 1 request, \d+ s left$", 10)
        status, body = engine.request("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 1}})
        assert (status, json.loads(body)["error"]["type"]) == (503, "draining")
        assert engine.request("/health")[0] == 503
        assert engine.await_exit(200) == 0
        running.join(5)
        assert running.answers[0]["meta_info"]["completion_tokens"] == 2500  # type: ignore[attr-defined]
        assert engine.tail(1) == "kdtree: drained and stopped (exit 0)"
        assert KEY not in engine.log.read_text()


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie (proc_pid_stat(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_stopped_scheduler_starves_the_watchdog_and_a_dead_one_ends_the_engine(
    engine_home: EngineHome, models: Path, tmp_path: Path
) -> None:
    with start(engine_home, tmp_path, tiny_pair(models), WATCHDOG_USEC=str(int(WATCHDOG * 1e6))) as engine:
        engine.await_ready()
        (scheduler,) = engine.children("sglang::scheduler")
        with stopped(scheduler):
            froze = time.monotonic()
            later = [*engine.said]
            engine.await_said(lambda heard: heard.at > froze + WATCHDOG, "still reporting", 2 * WATCHDOG)
            assert len(engine.said) > len(later)
            assert fed_between(engine, froze + WATCHDOG / 2, froze + WATCHDOG) == []
        thawed = time.monotonic()
        engine.await_said(
            lambda heard: "WATCHDOG" in heard.values and heard.at > thawed, "fed again", WATCHDOG
        )

        os.kill(scheduler, signal.SIGKILL)
        assert engine.await_exit(30) == 71
        line = engine.tail(1)
        assert line.startswith("kdtree: engine died while serving: Subprocess scheduler_0")
        assert line.endswith("(exit 71)")


@pytest.mark.matrix
def test_a_lost_rank_ends_the_engine_and_is_named(
    engine_home: EngineHome, models: Path, tmp_path: Path
) -> None:
    flags = speculative(models, "DDTREE", tp_size=2)
    variables = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1", "KDTREE_CHECK_RANKS": "1"}
    with start(engine_home, tmp_path, flags, WATCHDOG_USEC=str(int(WATCHDOG * 1e6)), **variables) as engine:
        engine.await_ready()
        assert engine.generate("def", 24)["meta_info"]["completion_tokens"] == 24
        long_request(engine, 4000)
        (second,) = engine.children("sglang::scheduler_TP1")
        os.kill(second, signal.SIGKILL)
        assert engine.await_exit(WATCHDOG) == 71
        line = engine.tail(1)
        assert line.startswith("kdtree: engine died while serving: ")
        assert "ended first: scheduler_TP1 (signal 9)" in line or "Subprocess scheduler_1 " in line
        assert "RanksDifferError" not in engine.log.read_text()


def test_a_drain_past_its_deadline_cuts_and_says_so(
    engine_home: EngineHome, models: Path, tmp_path: Path
) -> None:
    with start(engine_home, tmp_path, tiny_pair(models), KDTREE_DRAIN_SECONDS="1") as engine:
        engine.await_ready()
        children = engine.children("")
        long_request(engine, 8000)
        engine.process.send_signal(signal.SIGTERM)
        assert engine.await_exit(15) == 75
        assert engine.tail(1) == "kdtree: drain deadline of 1 s passed, 1 cut off (exit 75)"
        assert [pid for pid in children if alive(pid)] == []


def test_an_engine_that_dies_while_loading_says_where(
    engine_home: EngineHome, models: Path, tmp_path: Path
) -> None:
    with start(engine_home, tmp_path, tiny_pair(models)) as engine:
        engine.await_status("phase=(weights|kv-cache|graphs)", 120)
        for pid in engine.children("sglang::scheduler"):
            os.kill(pid, signal.SIGKILL)
        assert engine.await_exit(30) == 70
        assert engine.tail(1).startswith("kdtree: engine died while loading (phase ")
