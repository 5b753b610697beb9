"""Plans, archives and the words for endings: pure parts of the client."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from kdops import fleet, locks
from kdops.cli import main
from kdops.cli.deploy import pool
from kdops.deploy import client, pack
from kdops.deploy.bundle import Bundle, environment_bytes
from kdops.deploy.ending import failed, summary
from kdops.deploy.engine import engine_digest, site_files
from kdops.deploy.plan import plan
from kdops.deploy.playbook import Event, Run
from kdops.deploy.progress import Lines, Now, Progress, line
from kdops.deploy.rollback import choose
from kdops.errors import ExitCode, KdopsError, UsageError
from kdops.fleet import Host
from kdops.render import FileSet

pytestmark = pytest.mark.unit


def manifest(**more: Any) -> dict[str, Any]:
    return {"lock_digest": "abc", "engine_digest": "e1", "settings": {"page_size": 1}, **more}


def bundle(release: str = "linear-1", **more: Any) -> Bundle:
    return Bundle(release, "u.service", "lab0", FileSet(release, (), manifest(**more)), None, None)


def report(release: str = "linear-1", **more: Any) -> dict[str, Any]:
    return {
        "committed": [{"release": release, "unit": "u.service"}],
        "unit": {"active": "active"},
        "manifest": manifest(),
        "drift": [],
        "venvs": ["abc"],
        "guard": hashlib.sha256(pack.guard_pyz()).hexdigest(),
        "api_key": None,
        **more,
    }


def test_nothing_to_do() -> None:
    assert plan(bundle(), report()).empty


def test_changed_settings_are_named() -> None:
    made = plan(bundle("linear-2", settings={"page_size": 16}), report())
    assert made.changes == ("release linear-1 -> linear-2", "  page_size: 1 -> 16 (restart)")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"unit": {"active": "failed"}}, "the service is not running"),
        ({"venvs": []}, "Python environment abc is built from its lock"),
        ({"guard": "other"}, "the guard on the host is of another kdops version"),
    ],
)
def test_other_reasons_to_deploy(change: dict[str, Any], line: str) -> None:
    assert plan(bundle(), report(**change)).changes == (line,)


def test_a_changed_api_key_starts_even_the_serving_release_again(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("new")
    made = plan(replace(bundle(), api_key=key), report(api_key=hashlib.sha256(b"old").hexdigest()))
    assert made.changes == ("the API key",)
    assert made.new_key
    assert plan(replace(bundle(), api_key=key), report(api_key=hashlib.sha256(b"new").hexdigest())).empty


def test_environment_variables_are_named_without_their_values() -> None:
    old = report(manifest=manifest(settings={"environment": {"A": "1", "DATABASE_URL": "u:sentinel@h"}}))
    new = bundle("linear-2", settings={"environment": {"B": "sentinel", "DATABASE_URL": "u:other@h"}})
    assert plan(new, old).changes[1:] == ("  environment: A goes, B is new, DATABASE_URL changed (restart)",)


@pytest.mark.parametrize(("kind", "low", "high"), [("cuda", 8e9, 16e9), ("cpu", 2.6e9, 6e9)])
def test_disk_space_of_an_environment_is_estimated_from_its_lock(kind: str, low: float, high: float) -> None:
    assert low < environment_bytes(locks.lock_file(kind).read_text()) < high


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`kdops plan one` where the guard's report differs so: the exit code."""
    inventory = tmp_path / "lab.yml"
    inventory.write_text(
        "all: {hosts: {one: {gpu: cpu, engine_lock: cpu, engine_device: cpu, engine_model: /m}}}"
    )
    words = ["plan", "one", "--profile", "autoregressive", "--set", "page_size=1", "-i", str(inventory)]
    monkeypatch.setattr("sys.argv", ["kdops", *words])

    def call(**change: Any) -> int:
        found = plan(bundle(), report(**change))
        monkeypatch.setattr(client, "make_plan", lambda *_: found)
        with pytest.raises(SystemExit) as ended:
            main.main()
        return int(ended.value.code or 0)

    return call


def test_a_service_that_is_not_running_is_shown_with_the_command_that_starts_it(
    planned: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(unit={"active": "inactive"}) == ExitCode.OK
    told = capsys.readouterr()
    assert told.out == "the service is not running\n"
    assert "remedy: kdops start one\n" in told.err


def test_drift_is_shown_with_the_deploy_that_puts_it_right(
    planned: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert planned(drift=["unit edited"]) == ExitCode.DRIFT
    told = capsys.readouterr()
    assert told.out == "drift: unit edited\n"
    assert "remedy: kdops deploy one --profile autoregressive --set page_size=1 puts" in told.err


def test_drift_alone_is_a_reason_to_deploy() -> None:
    assert not plan(bundle(), report(drift=["unit edited"])).empty


def test_archives_are_deterministic_and_the_guard_runs_alone(tmp_path: Path) -> None:
    assert pack.guard_pyz() == pack.guard_pyz()
    file = tmp_path / "guard.pyz"
    file.write_bytes(pack.guard_pyz())
    done = subprocess.run(
        [sys.executable, "-ISB", file, "--help"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "commit" in done.stdout


def test_modes_travel_in_the_archive() -> None:
    with zipfile.ZipFile(BytesIO(pack.archive({"engine.env": (b"", 0o600)}))) as packed:
        assert packed.infolist()[0].external_attr >> 16 & 0o777 == 0o600


def test_the_engine_travels_with_its_entry_points() -> None:
    files = site_files()
    info = next(path for path in files if path.endswith("entry_points.txt"))
    assert b"[sglang.srt.plugins]\nkdtree = kdtree_engine" in files[info]
    assert "sdnotify/__init__.py" in files
    assert engine_digest() == engine_digest()


def test_rollback_target_is_the_release_before_the_serving_one() -> None:
    committed = [{"release": name, "unit": "u.service"} for name in ("a-1", "b-2", "c-3")]
    assert choose("h", "s", {"committed": committed}, None).release == "b-2"
    assert choose("h", "s", {"committed": committed}, "a-1").release == "a-1"


@pytest.mark.parametrize("wanted", ["c-3", "nope", ""])
def test_rollback_to_what_is_not_kept_lists_what_is(wanted: str) -> None:
    committed = [{"release": name, "unit": "u.service"} for name in ("a-1", "c-3")]
    with pytest.raises(UsageError) as caught:
        choose("h", "s", {"committed": committed}, wanted)
    assert "a-1" in caught.value.cause


def test_rollback_without_history_is_refused() -> None:
    with pytest.raises(UsageError, match="no earlier release"):
        choose("h", "s", None, None)


def outcome(result: str, serves: str | None) -> dict[str, Any]:
    return {"transaction": "t", "result": result, "serves": serves, "failure": None}


@pytest.mark.parametrize(
    ("result", "serves", "code", "words"),
    [
        ("rolled-back", "linear-1", ExitCode.ROLLED_BACK, "rolled back: release linear-1 serves"),
        ("stopped", None, ExitCode.ROLLED_BACK, "the service is stopped and disabled"),
        ("rollback-failed", None, ExitCode.ROLLBACK_FAILED, "NO release serves"),
        ("aborted", "linear-1", ExitCode.FAILED, "nothing was changed: release linear-1 serves"),
    ],
)
def test_every_ending_says_what_serves(
    host: Host, result: str, serves: str | None, code: ExitCode, words: str
) -> None:
    run = Run("failed", [Event("failed", "Upload the files", message="No space left on device")])
    error = failed(host, "t", run, outcome(result, serves))
    assert error.code is code
    assert words in error.remedy
    assert error.cause == "No space left on device"


def test_a_host_lost_before_the_switch_keeps_its_release(host: Host) -> None:
    error = failed(
        host, "t", Run("failed", [Event("unreachable", "Upload the files", message="timed out")]), None
    )
    assert error.code is ExitCode.UNREACHABLE
    assert "the release that served before still serves" in error.remedy


def test_progress_says_a_phase_once_and_an_eta() -> None:
    said: list[str] = []
    progress = Progress(Lines(said.append), (40.0, 44.0))
    for seconds in (1.0, 2.0, 3.0):
        answer = {
            "engine": "loading",
            "phase": "starting",
            "status_text": "phase=weights",
            "seconds": seconds,
        }
        progress.feed(Event("retry", "Wait until it is ready", answer))
    assert said == ["[starting] phase=weights  1 s of about 42 s"]


def test_a_passed_smoke_test_is_told_in_words() -> None:
    said: list[str] = []
    smoke = {"tokens": 128, "tokens_per_second": 160.3, "cached_tokens": None, "settings_checked": 21}
    Progress(Lines(said.append)).feed(Event("ok", "Test it", {"smoke": {**smoke, "seconds": 1.4}}))
    words = "128 tokens generated, 160.3 tokens/s, 21 settings as requested, in 1.4 s"
    assert said == [f"[smoke test] passed: {words}"]


def test_the_same_load_phase_is_said_every_ten_seconds() -> None:
    said: list[str] = []
    lines = Lines(said.append)
    for second in range(25):
        lines.show(Now("start", "starting", f"phase=weights {second} %", float(second)))
    lines.show(Now("start", "starting", "phase=graphs", 25.0))
    assert [line.split("  ")[1] for line in said] == ["0 s", "10 s", "20 s", "25 s"]


@pytest.mark.parametrize(
    ("now", "since", "text", "highlighted"),
    [
        (
            Now("upload", "environment", usual=40.0),
            3,
            "  14 s, about 40 s left  lock · preflight · upload environment"
            " · switch · start · smoke test · commit",
            "upload",
        ),
        (
            Now("start", "starting", "phase=weights 50 %", 10.0, 40.0),
            2,
            "  14 s, about 28 s left  lock · preflight · upload · switch · start weights 50 %"
            " · smoke test · commit",
            "start",
        ),
        (
            Now("start", "starting", "phase=\x1b[2Jgraphs", 50.0, 40.0),
            0,
            "  14 s, longer than usual  lock · preflight · upload · switch · start \\x1b[2Jgraphs"
            " · smoke test · commit",
            "start",
        ),
        (Now("restore", "restoring", "loading", 1.0), 0, "  14 s  restore loading", "restore"),
    ],
)
def test_the_bar_highlights_the_phase_and_tells_the_engines_own(
    now: Now, since: float, text: str, highlighted: str
) -> None:
    parts = line(now, 14.0, since)
    assert "".join(words for words, _ in parts) == text
    assert [words for words, style in parts if "reverse" in style] == [highlighted]


def test_the_last_line_says_what_served_and_where_the_time_went() -> None:
    spent = {"locked": 3.0, "uploading": 2.1, "switching": 1.9, "starting": 44.0, "smoked": 1.0}
    done = {"serves": "ddtree-2", "seconds": spent, "smoke": {"seconds": 1.2}}
    took = "52 s: upload 2 s, load 43 s, smoke test 1 s"
    assert summary(done, "linear-1") == f"ddtree-2 serves (was linear-1), {took}"
    done["seconds"] = {**spent, "locked": 303.0}
    assert "352 s: environment 303 s, upload" in summary(done, None)


@pytest.fixture
def host() -> Host:
    from kdops.fleet import load

    return load(Path(__file__).parent.parent.parent / "inventories" / "ct200.yml").one("ct200")


OPEN = {
    "who": "ann@desk", "why": "new drafter", "release": "linear-9", "phase": "starting",
    "opened_at": "2026-01-01T00:00:00+00:00", "lease_left": 41.0,
}  # fmt: skip


def test_during_an_open_deploy_nothing_is_called_drift() -> None:
    seen = report(transaction=OPEN, drift=["/etc/x was edited by hand"], unit={"active": "activating"})
    made = plan(bundle(), seen)
    assert (made.drift, made.changes) == ((), ())
    assert made.holder == OPEN


def test_an_open_deploy_is_told_before_anything_else() -> None:
    with pytest.raises(KdopsError) as caught:
        client.refuse_locked(fleet.load().one("lab0"), plan(bundle(), report(transaction=OPEN)))
    assert caught.value.code == ExitCode.LOCKED
    assert "ann@desk deploys linear-9 (new drafter)" in caught.value.cause
    assert "takes over in 41 s" in caught.value.remedy
    over = plan(bundle(), report(transaction={**OPEN, "lease_left": 0.0}))
    client.refuse_locked(fleet.load().one("lab0"), over)


def test_a_plan_says_what_its_changes_ask_for() -> None:
    def effect(**settings: Any) -> Any:
        return plan(bundle("linear-2", settings=settings), report()).effect

    assert (effect(page_size=16), effect(user="other", page_size=16)) == ("restart", "redeploy")
    assert plan(bundle(), report()).effect is None


def test_before_the_switch_nothing_is_restored() -> None:
    said: list[str] = []
    progress = Progress(Lines(said.append))
    for task in ("Take the lock", "Put the last committed release back"):
        progress.feed(Event("started", task))
    assert said == ["[lock]"]
    for task in ("Switch to the release", "Put the last committed release back"):
        progress.feed(Event("started", task))
    assert said == ["[lock]", "[switch]", "[restore]"]


@pytest.mark.parametrize(
    ("outcome", "foreseen", "words"),
    [
        ({"smoke": {"kv_tokens": 8000}}, 8192, "KV pool: 8,000 tokens; 8,192 were predicted (+2.4%)"),
        ({"smoke": {"kv_tokens": 8000}}, None, "KV pool: 8,000 tokens"),
        ({"smoke": {"kv_tokens": None}}, 8192, ""),
        ({"smoke": None}, 8192, ""),
        (None, 8192, ""),
    ],
)
def test_the_pool_is_told_beside_its_prediction(outcome: Any, foreseen: int | None, words: str) -> None:
    assert pool(outcome, foreseen) == words
