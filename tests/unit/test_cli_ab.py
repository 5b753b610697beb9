"""`kdops ab` and mistakes: a sentence and the right exit code, nothing touched."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from kdops import host
from kdops.cli import ab, main
from kdops.deploy import client
from kdops.errors import ExitCode
from kdops.host.status import HostStatus, UnitState
from kdops.store import Store

pytestmark = pytest.mark.unit

INVENTORY = """lab:
  hosts: {one: {ansible_host: 127.0.0.1, ansible_port: 1}, two: null}
  vars: {gpu: cpu, engine_model: /m, engine_lock: cpu, engine_device: cpu, engine_draft_model: /d}
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path))
    (tmp_path / "lab.yml").write_text(INVENTORY)
    return tmp_path


def test_a_run_of_bench_cannot_be_resumed(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {"arms": [{"name": "linear"}], "order": [0], "inventory": str(state / "lab.yml")}
    plan |= {"reference": False, "quick": True, "seed": 0}
    Store().open_run("r1", "one", "2026-01-01T00:00:00+00:00", plan)
    assert call(monkeypatch, "ab", "resume", "r1") == 2
    assert "kdops bench one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("active", "release", "code", "remedy"),
    [
        ("inactive", "linear-1", ExitCode.FAILED, "kdops start one"),
        ("active", None, ExitCode.REFUSED, "kdops deploy one"),
    ],
)
def test_bench_measures_only_a_release_that_serves(
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    active: str,
    release: str | None,
    code: int,
    remedy: str,
) -> None:
    seen = HostStatus("one", UnitState("kdtree-one.service", "loaded", active), release=release)
    monkeypatch.setattr(host, "HostConnection", contextlib.nullcontext)
    monkeypatch.setattr(host, "probe", lambda _: seen)
    assert call(monkeypatch, "bench", "one", "-i", str(state / "lab.yml")) == code
    assert f"remedy: {remedy}" in capsys.readouterr().err


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["kdops", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ab", "linear", "ddtree"), "which host?"),
        (("ab", "linear", "--host", "one"), "one arm cannot be compared"),
        (("ab", "linear", "nosuch", "--host", "one"), "nosuch"),
        (("ab", "linear", "linear", "--host", "one", "--set", "x"), "cannot be read"),
        (("ab", *["linear"] * 11, "--host", "one"), "11 arms in one run"),
        (
            ("ab", "linear", "--host", "one", "--set", "port=" + "9," * 400, "--set", "tp=" + "1," * 400),
            "160000 arms",
        ),
        (("ab", "linear", "linear", "--host", "one", "--prompts", "/dev/null"), "set /dev/null cannot"),
        (("ab", "linear", "linear", "--host", "one", "--prompts", "/nope"), "No such file or directory"),
        (("ab", "show"), "kdops ab show takes one run\n  cause:  none given"),
        (("ab", "linear", "linear", "--host", "one", "--concurrency", "4,x"), "cannot be read"),
        (("ab", "linear", "linear", "--host", "one", "--concurrency", "0"), "0 streams at once"),
        (("ab", "linear", "linear", "--host", "one", "--arrivals", "nan"), "nan requests a second"),
        (("ab", "linear", "linear", "--host", "one", "--client", "moon"), "'moon' is unknown"),
        (("ab", "linear", "linear", "--host", "one", "--tokens", "0"), "0 new tokens a request"),
        (("ab", "linear", "linear", "--host", "one", "--per-set", "0"), "0 prompts of each set"),
        (("ab", "linear", "linear", "--host", "one", "--sampling", "heat=1"), "'heat' is none of"),
        (("ab", "linear", "linear", "--host", "one", "--sampling", "top_p=0"), "--sampling: top_p 0"),
    ],
)
def test_a_wrong_measurement_is_refused(
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    assert call(monkeypatch, *words, "-i", str(state / "lab.yml")) == 2
    assert said in capsys.readouterr().err
    assert Store().runs() == []


def test_a_run_goes_on_with_the_sampling_it_began_with(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans: list[Any] = []
    monkeypatch.setattr(client, "loads", lambda host: [])
    monkeypatch.setattr(ab, "_go", lambda job, *_: plans.append(job.plan))
    words = ("linear", "linear", "--host", "one", "--quick", "--sampling", "temperature=0.7,seed=3")
    assert call(monkeypatch, "ab", *words, "-i", str(state / "lab.yml")) == 0
    (stored,) = Store().runs()
    assert stored.plan["sampling"]["code"] == {"temperature": 0.7, "seed": 3}
    assert call(monkeypatch, "ab", "resume", stored.id, "-i", str(state / "lab.yml")) == 0
    assert plans[1] == plans[0] and "these changed" not in capsys.readouterr().err


def test_runs_are_listed_and_an_incomplete_one_says_how_to_go_on(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = {"arms": [{"name": "linear"}, {"name": "ddtree"}], "order": [0, 1], "reference": True}
    Store().open_run("r1", "one", "2026-01-01", plan)
    assert call(monkeypatch, "ab", "list") == 0
    assert "linear ddtree" in capsys.readouterr().out
    assert call(monkeypatch, "ab", "show", "r1") == 1
    assert "3 of 3 legs are missing" in (said := capsys.readouterr().err) and "kdops ab resume r1" in said
    assert call(monkeypatch, "ab", "show", "nosuch") == 2
    assert call(monkeypatch, "ab", "compare", "r1") == 2


@pytest.mark.parametrize("words", [("ab", "show"), ("ab", "resume"), ("diagnose", "--run")])
def test_a_run_of_another_version_is_listed_and_gets_a_sentence(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    Store().open_run("r1", "one", "2026-01-01", {"stages": []})
    assert call(monkeypatch, "ab", "list") == 0
    assert "r1" in capsys.readouterr().out
    assert call(monkeypatch, *words, "r1") == 1
    assert "another version of kdops wrote it" in capsys.readouterr().err


def test_two_runs_are_shown_side_by_side_without_a_verdict(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store()
    for id_, seconds in (("r1", 1.0), ("r2", 2.0)):
        arms = [
            {"name": "linear", "profile": "linear", "release": "x", "speculates": False, "dtype": "float32"}
        ]
        plan = {
            "arms": arms,
            "order": [0],
            "reference": False,
            "quick": True,
            "sets": ["prose"],
            "workload": "w",
        }
        store.open_run(id_, "one", "2026-01-01T00:00:00+00:00", plan)
        meta = {"prompt_tokens": 7, "completion_tokens": 3}
        sample = {"key": "prose/0", "stage": "prose", "asked": 3, "ttft": 0.1, "seconds": 1.1, "meta": meta}
        sample |= {"decode_seconds": seconds, "first_tokens": 1, "output_ids": [1, 2, 3], "gaps": [seconds]}
        attempt = store.open_leg(id_, 0)
        store.add_sample(id_, 0, attempt, "prose/0", sample)
        store.close_leg(id_, 0, attempt, {})
        store.set_state(id_, "done", {"noise": None, "calls": {"ddtree": "better"}})
    assert call(monkeypatch, "ab", "compare", "r1", "r2") == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split() == ["prose", "linear", "2.0", "1.0", "0.500"]
    assert "no verdict" in told.err
    assert call(monkeypatch, "ab", "compare", "r1", "r2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["same_workload"] is True
    assert found["rates"] == [{"set": "prose", "arm": "linear", "tokens_per_second": [2.0, 1.0]}]
    assert call(monkeypatch, "ab", "list") == 0
    assert "ddtree better" in capsys.readouterr().out
