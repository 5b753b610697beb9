"""`kdops tui` as a command: one frame without hosts or a terminal, and every wrong word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import session
from typer.testing import CliRunner

from kdops import fleet
from kdops.cli.main import app
from kdops.errors import UsageError
from kdops.fleet import engine_config
from kdops.fleet.settings import values
from kdops.host import HostConnection
from kdops.tui import asking, details, start
from kdops.tui.app import Dashboard
from kdops.tui.feed import Heard
from kdops.tui.recording import Recorder
from kdops.tui.themes import DARK

pytestmark = pytest.mark.unit
INVENTORY = """\
all:
  hosts:
    box:
      gpu: h200-sxm
      gpu_count: 1
      engine_model: org/model
      engine_draft_model: org/draft
      engine_attention_backend: triton
      engine_page_size: 16
      engine_cuda_graph_decode: full
"""


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "session.jsonl"
    recorder = Recorder(path, session.FLEET)
    recorder.write(list(session.events(2)))
    recorder.close()
    return path


@pytest.fixture
def inventory(tmp_path):
    path = tmp_path / "fleet.yml"
    path.write_text(INVENTORY)
    return path


@pytest.fixture(autouse=True)
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("KDOPS_KEYS", str(tmp_path / "keys.toml"))
    return tmp_path / "keys.toml"


@pytest.mark.parametrize("size", [("0", "-3"), ("1", "1"), ("9" * 30, "9"), ("100000", "100000"), ("x", "")])
def test_a_frame_of_any_size_ends(recorded, size):
    command = [sys.executable, "-m", "kdops.cli.main", "tui", "--once", "--replay", str(recorded)]
    own = {**os.environ, "COLUMNS": size[0], "LINES": size[1]}
    done = subprocess.run(command, capture_output=True, text=True, env=own, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") <= 1000


def test_one_frame_of_a_recording(recorded):
    done = CliRunner(env={"COLUMNS": "100", "LINES": "20"}).invoke(
        app, ["tui", "--once", "--replay", str(recorded), "--speed", "100"]
    )
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) == 20 and max(map(len, lines)) <= 100
    assert "● running" in done.stdout and "✖ unreachable" in done.stdout


def test_a_host_of_a_lab_that_is_down_is_unreachable_and_nothing_is_claimed(tmp_path):
    file = tmp_path / "lab.yml"
    ssh = tmp_path / "cache" / "lab" / "gone" / "ssh_config"
    file.write_text(f"all: {{hosts: {{lab0: {{ansible_ssh_common_args: '-F {ssh}', gpu: cpu}}}}}}\n")
    own = {"COLUMNS": "160", "LINES": "60", "KDOPS_LAB": "gone", "KDOPS_CACHE": str(tmp_path / "cache")}
    done = CliRunner(env=own).invoke(app, ["tui", "--once", "--view", "host", "-i", str(file)])
    assert done.exit_code == 0, done.output
    assert "unreachable" in done.stdout and "the lab 'gone' is down" in done.stdout
    assert "nvidia-smi" not in done.stdout and "asking the host" not in done.stdout
    assert done.stdout.count("not known: the host has not answered") == 5


class _Answers:
    """A feed of one host that has answered. late: set some looks later."""

    hosts = ("box",)
    live = True

    def __init__(self):
        self.looks, self.late = 0, threading.Event()

    def start(self): ...

    def stop(self): ...

    def now(self):
        return session.BEGUN

    def drain(self):
        self.looks += 1
        if self.looks == 8:
            self.late.set()
        return [Heard("box", session.BEGUN, session.document("box", 1.0))]


def test_one_frame_of_a_host_waits_for_its_settings(inventory, monkeypatch):
    feed = _Answers()

    def fetch(*_):
        feed.late.wait()
        return details.Details((), (("User", "kdtree"),), problem="told late")

    monkeypatch.setattr(asking, "fetch", fetch)
    host = fleet.load(inventory).one("box")
    connections = {"box": HostConnection(host)}
    dashboard = Dashboard(
        feed, {"box": host}, connections=connections, write=False, changed_keys={}, keys_file="",
        theme=DARK.name, view="host",
    )  # fmt: skip
    shown = start.frame(dashboard, (160, 60))
    assert "told late" in shown and "kdtree" in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--replay", "FILE"], "needs a terminal"),
        (["--replay", "FILE", "--write", "--once"], "plays a recording"),
        (["--replay", "FILE", "box", "--once"], "plays a recording"),
        (["--replay", "nowhere", "--once"], "cannot read nowhere"),
        (["--replay", "FILE", "--once", "--view", "flet"], "did you mean 'fleet'"),
        (["--replay", "FILE", "--once", "--theme", "kdops-drak"], "did you mean 'kdops-dark'"),
        (["-i", "INVENTORY", "--once", "--record", "FILE"], "cannot record"),
        (["-i", "INVENTORY", "--once", "bax"], "did you mean 'box'"),
    ],
)
def test_wrong_words(words, said, recorded, inventory):
    given = [{"FILE": str(recorded), "INVENTORY": str(inventory)}.get(word, word) for word in words]
    done = CliRunner().invoke(app, ["tui", *given])
    assert isinstance(done.exception, UsageError)
    assert said in done.exception.title


def test_a_wrong_key_file_is_refused_at_the_start(recorded, own_keys):
    own_keys.write_text('[keys]\nquit = "j"\n')
    done = CliRunner().invoke(app, ["tui", "--once", "--replay", str(recorded)])
    assert isinstance(done.exception, UsageError)
    assert "the key j would mean quit and down" in done.exception.title


def test_help_does_not_load_textual():
    check = "import sys, kdops.cli.main; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


def test_the_first_frame_does_not_wait_for_statistics():
    check = "import sys, kdops.tui.start; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


def manifest(inventory: Path, **changes):
    (host,) = fleet.load(inventory).hosts
    running = json.loads(json.dumps(values(engine_config(host, "ddtree")))) | changes
    return host, {"profile": "ddtree", "settings": running, "expected": {"page_size": running["page_size"]}}


def test_running_settings_with_origins(inventory):
    host, told = manifest(inventory)
    rows, problem = details.settings(host, told, {"page_size": 16})
    (page,) = [row for row in rows if row.key == "engine_page_size"]
    assert (page.value, page.note, problem) == ("16", "", "")
    assert page.origin.endswith("fleet.yml:9")
    assert next(row for row in rows if row.key == "engine_port").origin == "default"
    rows, _ = details.settings(host, told, {})
    assert not [row for row in rows if row.note], "what the probe does not carry says nothing"


def test_what_differs_comes_first(inventory):
    host, told = manifest(inventory, page_size=1)
    rows, _ = details.settings(host, told, {"page_size": 64})
    assert rows[0].key == "engine_page_size"
    assert rows[0].note == "the inventory says 16; page_size: requested 1, effective 64"


def test_a_release_that_the_inventory_no_longer_knows(inventory):
    host, told = manifest(inventory)
    rows, problem = details.settings(host, {**told, "profile": "gone"}, None)
    assert rows and "gone" in problem
    assert details.settings(host, None, None) == ((), "nothing is deployed, or its manifest cannot be read")
