"""Day to day on a real engine: stock SGLang with the DDTREE plugin, deployed once for the whole module."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from conftest import eventually
from host_service import command, environment, find, kdops

from kdops.host import HostConnection, probe
from kdops.serving import log_lines, metrics

pytestmark = [pytest.mark.lab, pytest.mark.engine]

WATCHDOG_S = 5
# Lets the scheduler run a quarter of the time: a prefill that takes this machine seconds becomes several
# watchdogs long, one layer of it stays below one.
THROTTLE = "while kill -STOP {0}; do sleep 0.15; kill -CONT {0}; sleep 0.05; done"
PROMPT = "def fibonacci(n):\n    "


@pytest.fixture(scope="module")
def served(lab):
    """lab0 serving the ddtree profile; stopped and cleaned at the end."""
    lab.clean("lab0")
    since = lab.clock("lab0")
    changes = [f"engine_watchdog={WATCHDOG_S}", "engine_chunked_prefill=4096"]
    options = [word for change in changes for word in ("--set", change)]
    done = kdops(lab, "deploy", "lab0", "--profile", "ddtree", *options, timeout=400)
    assert done.returncode == 0, done.stderr
    yield lab
    lab.count_starts("lab0", since)
    lab.clean("lab0")


def document(lab, *arguments):
    done = kdops(lab, *arguments, "--json", timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_request_tells_its_acceptance_and_it_adds_up(served):
    answer = document(served, "generate", "lab0", PROMPT, "--max-new-tokens", "200")
    assert answer["acceptance"]["problems"] == []
    assert answer["completion_tokens"] == 200 or answer["finish_reason"] == "stop"
    assert 1 < answer["acceptance_length"] <= 8
    assert answer["tokens_per_second"] > 1
    shown = kdops(served, "generate", "lab0", PROMPT, "--max-new-tokens", "64", timeout=120)
    assert shown.returncode == 0
    assert "tokens/s" in shown.stderr
    assert "AL " in shown.stderr
    assert shown.stdout.strip()


def test_one_token_needs_no_step(served):
    answer = document(served, "generate", "lab0", "A", "--max-new-tokens", "1")
    assert (answer["completion_tokens"], answer["acceptance"]) == (1, None)


def test_a_request_the_engine_cannot_take_is_told_in_its_words(served):
    done = kdops(served, "generate", "lab0", "word " * 20_000, timeout=120)
    assert done.returncode == 1
    assert "HTTP 400" in done.stderr


def test_status_of_a_serving_host(served):
    document(served, "generate", "lab0", PROMPT, "--max-new-tokens", "200")

    def told():
        (row,) = document(served, "status", "lab0")["hosts"]
        return row

    def settled(row):
        return row["al_source"] == "engine" and row["running"] == 0

    eventually(lambda: settled(told()), "the launcher tells of the request and that it ended", 20)
    row = told()
    assert (row["state"], row["profile"], row["drift"], row["restarts"]) == ("running", "ddtree", [], 0)
    assert row["notes"] == []
    assert row["release"].startswith("ddtree-")
    assert 1 < row["acceptance_length"] <= 8


def test_metrics_and_log_lines_are_understood(served):
    document(served, "generate", "lab0", PROMPT, "--max-new-tokens", "400")
    with HostConnection(find(served, "lab0")) as connection:
        engine = probe(connection).engine
    seen = metrics.parse(engine.metrics or "")
    assert seen.generated > 0
    assert seen.verify_steps > 0
    assert engine.server_info["version"] == "0.5.23"
    lines = kdops(
        served, "logs", "lab0", "--grep", "Decode batch|Prefill batch|DDTREE metrics"
    ).stdout.splitlines()
    events = [log_lines.parse(line) for line in lines]
    assert None not in events
    assert {type(event).__name__ for event in events} == {"DecodeBatch", "PrefillBatch", "TreeSteps"}
    assert all(event.consistent for event in events if isinstance(event, log_lines.TreeSteps))


def findings(lab):
    return document(lab, "diagnose", "lab0")["findings"]


def test_a_sound_host_gets_no_finding(served):
    assert findings(served) == []


def test_edits_on_the_host_are_drift(served):
    unit = "/etc/systemd/system/kdtree-lab0.service"
    served.ssh("lab0", f"cp {unit} /root/unit; echo '# by hand' >> {unit}; mkdir -p {unit}.d")
    served.ssh("lab0", f"printf '[Service]\\nNice=5\\n' > {unit}.d/override.conf")
    try:
        drift = " ".join(document(served, "status", "lab0")["hosts"][0]["drift"])
        assert "unit file edited" in drift
        assert "daemon-reload needed" in drift
    finally:
        served.ssh("lab0", f"cp /root/unit {unit}; rm -r {unit}.d; systemctl daemon-reload")
    assert document(served, "status", "lab0")["hosts"][0]["drift"] == []


def test_a_long_prefill_is_no_hang_and_a_stopped_scheduler_is(served):
    def shown(name):
        return served.ssh("lab0", f"systemctl show -P {name} kdtree-lab0")

    before = shown("InvocationID")
    scheduler = served.ssh("lab0", "pgrep -f ^sglang::scheduler")
    served.ssh("lab0", f"systemd-run --quiet --unit=throttle sh -c '{THROTTLE.format(scheduler)}'")
    try:
        begun = time.monotonic()
        answer = document(served, "generate", "lab0", "word " * 7000, "--max-new-tokens", "1")
        seconds = time.monotonic() - begun
    finally:
        served.ssh("lab0", f"systemctl stop throttle; kill -CONT {scheduler}", check=False)
    assert answer["prompt_tokens"] > 6000
    assert seconds > 2 * WATCHDOG_S, "too short a prefill to tell a fed watchdog from a patient one"
    assert shown("InvocationID") == before

    served.ssh("lab0", f"kill -STOP {scheduler}")
    eventually(lambda: shown("InvocationID") != before, "systemd starts it anew", 8 * WATCHDOG_S)
    words = served.ssh("lab0", f"journalctl -o cat UNIT=kdtree-lab0.service INVOCATION_ID={before}")
    assert f"Watchdog timeout (limit {WATCHDOG_S}s)!" in words
    eventually(lambda: shown("ActiveState") == "active", "it serves again", 120)
    assert shown("NRestarts") == "1"
    document(served, "generate", "lab0", PROMPT, "--max-new-tokens", "8")
    named = findings(served)[0]
    assert (named["id"], named["severity"]) == ("watchdog", "slow"), "it serves again, so no more than slow"
    assert any("Watchdog timeout" in line for line in named["evidence"])


def test_stop_lets_a_running_request_finish(served):
    long = subprocess.Popen(
        command("generate", "lab0", PROMPT, "--max-new-tokens", "1500", "--json"),
        env=environment(served), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with HostConnection(find(served, "lab0")) as connection:
        eventually(lambda: probe(connection).unit.told.get("running") == "1", "it runs", 30)
    stopped = kdops(served, "stop", "lab0", timeout=120)
    assert stopped.returncode == 0
    assert "draining 1 request" in stopped.stderr
    out, words = long.communicate(timeout=60)
    if "drain deadline passed" not in stopped.stdout:  # 20 s, which a busy machine may need for less
        assert long.returncode == 0, words
        assert json.loads(out)["acceptance"]["problems"] == []
    assert document(served, "status", "lab0")["hosts"][0]["state"] == "stopped"
