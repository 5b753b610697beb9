"""Measurements survive a kill, are never lost and never counted twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kdops.errors import ExitCode, KdopsError, UsageError
from kdops.store import Store

pytestmark = pytest.mark.unit


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "m.sqlite")
    made.open_run("r1", "lab0", "2026-01-01T00:00:00", {"arms": ["a"]})
    return made


def test_only_a_finished_attempt_counts(store: Store) -> None:
    first = store.open_leg("r1", 0)
    store.add_sample("r1", 0, first, "prose/0", {"tokens": 1})
    assert store.legs("r1") == {}
    second = store.open_leg("r1", 0)
    store.add_sample("r1", 0, second, "prose/0", {"tokens": 2})
    store.close_leg("r1", 0, second, {"port": 1})
    assert store.legs("r1") == {0: ({"port": 1}, [{"tokens": 2}])}


def test_a_sample_is_not_taken_twice(store: Store) -> None:
    attempt = store.open_leg("r1", 0)
    store.add_sample("r1", 0, attempt, "prose/0", {})
    with pytest.raises(KdopsError):
        store.add_sample("r1", 0, attempt, "prose/0", {})


def test_what_was_measured_before_a_kill_is_there(tmp_path: Path) -> None:
    script = (
        "import os, sys, signal; from pathlib import Path; from kdops.store import Store\n"
        "s = Store(Path(sys.argv[1])); s.open_run('r', 'h', 'now', {}); n = s.open_leg('r', 0)\n"
        "s.add_sample('r', 0, n, 'k', {'tokens': 5}); s.close_leg('r', 0, n, {})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "m.sqlite"
    done = subprocess.run([sys.executable, "-c", script, path], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    assert Store(path).legs("r") == {0: ({}, [{"tokens": 5}])}


def test_a_run_is_running_only_while_its_process_lives(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from kdops.store import Store\n"
        "s = Store(Path(sys.argv[1])); s.open_run('r', 'h', 'now', {}); print('open', flush=True)\n"
        "sys.stdin.read()"
    )
    path = tmp_path / "m.sqlite"
    command = [sys.executable, "-c", script, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as measuring:
        assert measuring.stdout and measuring.stdout.readline() == b"open\n"
        here = Store(path)
        assert here.run("r").state == "running"
        with pytest.raises(KdopsError, match="measured by another kdops") as refused:
            here.set_state("r", "running")
        assert refused.value.code == ExitCode.LOCKED
        measuring.kill()
    assert here.run("r").state == "interrupted"
    here.set_state("r", "running")
    assert Store(path).run("r").state == "running"
    here.set_state("r", "done", {})
    assert Store(path).run("r").state == "done" and not list((tmp_path / "running").iterdir())


def test_a_run_is_found_by_the_beginning_of_its_name(store: Store) -> None:
    assert store.run("r").host == "lab0"
    store.open_run("r2", "lab1", "2026-01-02T00:00:00", {})
    assert [run.id for run in store.runs()] == ["r2", "r1"]
    for wrong in ("r", "x", ""):
        with pytest.raises(UsageError):
            store.run(wrong)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.sqlite").write_text("no database at all, but long enough to be looked at\n" * 20)
    with pytest.raises(KdopsError) as caught:
        Store(tmp_path / "m.sqlite")
    assert "m.sqlite" in caught.value.cause


def test_a_damaged_file_is_named_when_it_is_read(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite"
    for number in range(200):
        store.open_run(f"r{number + 2}", "lab0", "2026", {"arms": ["a" * 500]})
    store.close()
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * (path.stat().st_size - 8192))
    with pytest.raises(KdopsError) as caught:
        Store(path).runs()
    assert "m.sqlite" in caught.value.cause and caught.value.remedy


@pytest.mark.parametrize("plan", ["{cut", "[1]", "[" * 100_000])
def test_a_damaged_plan_is_named(store: Store, tmp_path: Path, plan: str) -> None:
    with sqlite3.connect(tmp_path / "m.sqlite") as raw:
        raw.execute("UPDATE runs SET plan = ?", (plan,))
    with pytest.raises(KdopsError) as caught:
        store.run("r1")
    assert caught.value.title == "the measurements cannot be read"


def test_a_file_of_another_shape_is_named(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "o.sqlite") as raw:
        raw.execute("CREATE TABLE runs (a, b)")
    with pytest.raises(KdopsError) as caught:
        Store(tmp_path / "o.sqlite").runs()
    assert "no such column" in caught.value.cause


def test_a_file_that_another_holds_is_waited_for_a_few_seconds_only(store: Store, tmp_path: Path) -> None:
    holder = sqlite3.connect(tmp_path / "m.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    with pytest.raises(KdopsError) as caught:
        store.runs()
    assert "locked" in caught.value.cause and time.monotonic() - began < 10
