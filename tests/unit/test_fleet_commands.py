"""`kdops hosts`, `kdops config`, `kdops render` as a user meets them: streams, exit codes, words."""

import errno
import json
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fleet_files import host

from kdops.cli.main import main
from kdops.deploy import client, guard_call, rollback
from kdops.errors import UsageError
from kdops.fleet import SETTINGS

pytestmark = pytest.mark.unit

INVENTORIES = str(Path(__file__).parents[2] / "inventories")


@pytest.fixture
def kdops(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `kdops ARGS` in this process; returns exit code, stdout, stderr."""
    monkeypatch.setenv("KDOPS_INVENTORY", INVENTORIES)

    def run(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kdops", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def test_hosts_lists_every_inventory(kdops) -> None:
    code, out, err = kdops("hosts")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["HOST", "b300", "ct200", "lab0"]
    rows = json.loads(kdops("hosts", "--json")[1])
    assert {row["host"]: (row["gpu_count"], row["profile"]) for row in rows} == {
        "b300": (8, "linear"),
        "ct200": (8, "linear"),
        "lab0": (0, "ddtree"),
    }


def test_prune_with_nothing_to_free_says_so(kdops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_call, "call", lambda *_, **__: None)
    assert kdops("prune", "lab0")[1] == "nothing to free on lab0\n"


@pytest.mark.parametrize("profile", ["linear", "ddtree"])
def test_parentheses_are_explained_only_where_some_are(kdops, profile: str) -> None:
    _, out, _ = kdops("config", "lab0", "--profile", profile)
    assert ("(engine_" in out) == ("(in parentheses: " in out) == (profile == "linear")


def test_config_shows_value_origin_flag_effect_and_memory(kdops) -> None:
    code, out, err = kdops("config", "ct200", "--profile", "ddtree", "--set", "engine_page_size=16")
    assert (code, err) == (0, "")
    lines = {
        line.split()[0]: line.split()[1:]
        for line in out.splitlines()
        if line.startswith(("engine_", "(engine"))
    }
    assert len(lines) == len(SETTINGS)
    assert lines["engine_page_size"] == ["16", "--set", "--page-size", "restart"]
    assert lines["engine_context_length"][:2] == ["200000", f"{INVENTORIES}/group_vars/kimi.yml:10"]
    assert lines["engine_algorithm"][:1] == ["DDTREE"]
    assert lines["engine_user"][-1] == "redeploy"
    assert "KV 70,272 + drafter 2,560 B a token" in out


def test_config_marks_what_has_no_bearing(kdops) -> None:
    out = kdops("config", "ct200", "--profile", "autoregressive")[1]
    assert "(engine_tree_budget)" in out
    assert "(engine_page_size)" not in out


def test_config_as_json(kdops) -> None:
    document = json.loads(kdops("config", "lab", "--json")[1])
    assert (document["host"], document["profile"]) == ("lab0", "ddtree")
    assert document["memory"]["tokens"] == 8192
    by_key = {row["key"]: row for row in document["settings"]}
    names = ("HF_HUB_OFFLINE", "OMP_NUM_THREADS", "SGLANG_USE_CPU_ENGINE")
    assert by_key["engine_environment"]["value"] == dict.fromkeys(names, "1")


def test_config_hides_secrets(kdops) -> None:
    for extra in ([], ["--json"]):
        code, out, err = kdops("config", "ct200", "--set", "environment={HF_TOKEN: sentinel-9}", *extra)
        assert code == 0
        assert "HF_TOKEN" in out
        assert "sentinel-9" not in out + err


def test_config_without_known_shape_says_so(kdops, tmp_path: Path) -> None:
    host(tmp_path)
    code, out, _ = kdops("config", "box", "-i", str(tmp_path / "fleet.yml"), "--profile", "autoregressive")
    assert code == 0
    assert "memory: not predicted" in out


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["config", "ct20"], "did you mean 'ct200'"),
        (["config", "kimi"], "means 2 hosts"),
        (["config", "ct200", "--profile", "dtree"], "did you mean 'ddtree'"),
        (["config", "ct200", "--set", "page_size"], "KEY=VALUE"),
        (["config", "ct200", "--set", "pagesize=1"], "did you mean 'engine_page_size'"),
        (["config", "ct200", "--set", "page_size=big"], "whole number"),
        (["config", "ct200", "--set", "engine_model_facts=x"], "is no setting of an engine"),
        (["config", "ct200", "-i", "/nonexistent.yml"], "does not exist"),
        (["render", "ct200", "--out", "/dev/null/x"], "cannot write"),
        (["report", "lab0", "--out", INVENTORIES], "cause:  File exists"),
    ],
)
def test_mistakes_end_with_exit_2_a_cause_and_a_remedy(kdops, args: list[str], said: str) -> None:
    code, out, err = kdops(*args)
    assert (code, out) == (2, "")
    assert said in err
    assert "remedy:" in err


def test_render_writes_the_files_with_their_modes(kdops, tmp_path: Path) -> None:
    code, out, err = kdops("render", "ct200", "--profile", "ddtree", "--out", str(tmp_path / "out"))
    assert (code, out) == (0, "")
    assert "4 files" in err
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "out").iterdir()}
    assert modes == {
        "kdtree-ct200.service": 0o644,
        "launch.yaml": 0o644,
        "engine.env": 0o600,
        "manifest.json": 0o644,
    }


def test_render_names_what_else_is_in_the_folder(kdops, tmp_path: Path) -> None:
    (tmp_path / "old.service").touch()
    for _ in range(2):  # the same release over itself is no news
        code, out, err = kdops("render", "ct200", "--out", str(tmp_path))
        assert (code, out) == (0, "")
        assert err.splitlines()[1:] == [f"warning: {tmp_path} holds 1 other files too, such as old.service"]


def test_a_report_that_cannot_be_collected_leaves_no_file(
    kdops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDOPS_LAB", "gone")
    monkeypatch.setenv("KDOPS_CACHE", str(tmp_path / "cache"))
    assert kdops("report", "lab0", "--out", str(tmp_path / "r.tar.gz"))[0] == 3
    assert not (tmp_path / "r.tar.gz").exists()


@pytest.mark.parametrize(("given", "told"), [((), "rollback"), (("--why", "slow"), "rollback: slow")])
def test_a_rollback_is_recorded_as_one(
    kdops, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], told: str
) -> None:
    seen: list[str] = []

    def deploy(_host: object, _target: object, options: client.Options, *_: object) -> None:
        seen.append(options.why)
        raise UsageError("stop", cause="here", remedy="-")

    monkeypatch.setattr(rollback, "target", lambda *_: SimpleNamespace(release="linear-1"))
    monkeypatch.setattr(client, "deploy", deploy)
    kdops("rollback", "lab0", *given)
    assert seen == [told]


def test_a_full_disk_names_the_folder(kdops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as write(2) fails: without a name

    monkeypatch.setattr(Path, "write_bytes", full)
    code, out, err = kdops("render", "ct200", "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert f"cause:  {tmp_path}/out: No space left on device" in err and "with room" in err


def test_no_setting_acts_on_the_terminal_but_it_arrives_as_written(kdops, tmp_path: Path) -> None:
    nasty = "a\x9b31m\x1b]0;x\x07\u202eb"
    change = f"environment={json.dumps({'X': nasty})}"
    for command in ("render", "config"):
        code, out, err = kdops(command, "ct200", "--set", change)
        assert (code, err) == (0, "")
        assert not set("\x9b\x1b\x07\u202e") & set(out)
    assert kdops("render", "ct200", "--set", change, "--out", str(tmp_path))[0] == 0
    assert f'X="{nasty}"' in (tmp_path / "engine.env").read_text()


def test_render_shows_the_files_with_headers(kdops) -> None:
    code, out, err = kdops("render", "b300")
    assert (code, err) == (0, "")
    headers = [line.split()[2] for line in out.splitlines() if line.startswith("# =====")]
    assert headers == ["kdtree-b300.service", "launch.yaml", "engine.env", "manifest.json"]
    assert "context-length: 200000" in out
