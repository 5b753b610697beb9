"""`kdops status`, `start`, `stop`, `restart`, `history` on real systemd hosts."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from conftest import eventually
from host_service import SERVICE, command, environment, find, install, kdops

from kdops.host import HostConnection
from kdops.host.probe import command as command_of
from kdops.host.probe import script

pytestmark = pytest.mark.lab


def rows(lab, *names):
    done = kdops(lab, "status", *names, "--json")
    return {row["host"]: row for row in json.loads(done.stdout)["hosts"]}, done.returncode


def test_start_status_restart_stop(clean_host):
    lab = clean_host("lab0")
    install(lab, "lab0")
    assert rows(lab, "lab0")[0]["lab0"]["state"] == "stopped"

    started = kdops(lab, "start", "lab0")
    assert (started.returncode, started.stdout) == (0, "lab0: ready\n")
    assert "phase=weights" in started.stderr
    row = rows(lab, "lab0")[0]["lab0"]
    assert (row["state"], row["running"], row["queued"], row["tokens_per_second"]) == ("running", 1, 2, 237.5)
    assert (row["acceptance_length"], row["al_source"]) == (4.38, "engine")

    before = lab.ssh("lab0", "systemctl show -P InvocationID kdtree-lab0")
    assert kdops(lab, "start", "lab0").returncode == 0
    assert lab.ssh("lab0", "systemctl show -P InvocationID kdtree-lab0") == before, "it ran already"
    restarted = kdops(lab, "restart", "lab0")
    assert restarted.returncode == 0
    assert "draining 1 request" in restarted.stderr
    assert lab.ssh("lab0", "systemctl show -P InvocationID kdtree-lab0") != before

    stopped = kdops(lab, "stop", "lab0")
    assert (stopped.returncode, stopped.stdout) == (0, "lab0: stopped\n")
    assert "draining 1 request, 2 s left" in stopped.stderr
    assert lab.ssh("lab0", "systemctl is-active kdtree-lab0", check=False) == "inactive"


def test_the_probe_leaves_secrets_on_the_host(clean_host):
    lab = clean_host("lab0")
    install(lab, "lab0")
    assert kdops(lab, "start", "lab0").returncode == 0
    with HostConnection(find(lab, "lab0")) as connection:
        report = connection.run(command_of(connection.host), stdin=script(), check=True).text
    assert json.loads(report)["engine"]["server_info"]["version"] == "0.5.23"
    assert "open-sesame" not in report


def test_an_engine_that_is_up_and_does_not_listen_is_unhealthy(clean_host):
    lab = clean_host("lab0")
    install(lab, "lab0", program=READY)
    assert kdops(lab, "start", "lab0").returncode == 0
    row = rows(lab, "lab0")[0]["lab0"]
    assert row["state"] == "unhealthy"
    assert "HTTP on port 30000 says: refused" in row["notes"][0]


def test_now_skips_the_drain_and_leaves_no_failed_unit(clean_host):
    lab = clean_host("lab0")
    install(lab, "lab0", program="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READY)
    assert kdops(lab, "start", "lab0").returncode == 0
    began = time.monotonic()
    assert kdops(lab, "restart", "lab0", "--now").returncode == 0
    assert kdops(lab, "stop", "lab0", "--now").returncode == 0
    assert time.monotonic() - began < 20, "TimeoutStopSec is 90 s"
    assert lab.ssh("lab0", "systemctl is-failed kdtree-lab0", check=False) == "inactive"


def test_a_person_s_restarts_never_meet_the_start_limit(clean_host):
    lab = clean_host("lab0")
    limit = "[Unit]\nStartLimitIntervalSec=600\nStartLimitBurst=2\n"
    install(lab, "lab0", program=READY, service=limit + SERVICE)
    for _ in range(4):
        done = kdops(lab, "restart", "lab0")
        assert done.returncode == 0, done.stderr
    lab.ssh("lab0", "for i in 1 2 3; do systemctl restart kdtree-lab0; done", check=False)
    assert lab.ssh("lab0", "systemctl show -P Result kdtree-lab0") == "start-limit-hit"
    done = kdops(lab, "start", "lab0")
    assert done.returncode == 0, done.stderr


READY = """import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
time.sleep(1000)
"""


def test_a_failed_start_is_told_with_its_own_last_lines_and_can_be_tried_again_at_once(clean_host):
    lab = clean_host("lab0")
    install(lab, "lab0", service=SERVICE.replace("RestartSec=1", "RestartSec=300"))
    lab.ssh("lab0", "logger -t kdtree -u /dev/null x; touch /root/fail")
    failed = kdops(lab, "start", "lab0", "--json")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "exit status 70" in failed.stderr
    assert r"torch.OutOfMemoryError: no \x1b[31mmemory" in failed.stderr
    assert rows(lab, "lab0")[0]["lab0"]["state"] == "restarting"
    lab.ssh("lab0", "rm /root/fail")
    again = kdops(lab, "start", "lab0")
    assert again.returncode == 0, again.stderr


def test_ctrl_c_stops_the_watching_and_not_the_service(clean_host):
    lab = clean_host("lab0")
    install(lab, "lab0")
    lab.ssh("lab0", "touch /root/hang")
    process = subprocess.Popen(
        command("start", "lab0"),
        env=environment(lab),
        stderr=subprocess.PIPE,
        text=True,
        stdout=subprocess.DEVNULL,
    )
    line = ""
    while "activating" not in line:
        line = process.stderr.readline()
    process.send_signal(subprocess.signal.SIGINT)
    assert "the start goes on" in process.communicate(timeout=10)[1]
    assert process.returncode == 130
    assert rows(lab, "lab0")[0]["lab0"]["state"] == "loading"
    lab.ssh("lab0", "rm /root/hang")
    eventually(lambda: rows(lab, "lab0")[0]["lab0"]["state"] == "running", "it becomes ready")


@pytest.mark.parametrize("action", ["start", "stop", "restart"])
def test_nothing_deployed(clean_host, action):
    lab = clean_host("lab0")
    done = kdops(lab, action, "lab0")
    assert done.returncode == 5
    assert "nothing is deployed" in done.stderr
    assert "kdops deploy lab0" in done.stderr


def test_an_open_deploy_locks_the_service(clean_host):
    lab = clean_host("lab0")
    install(lab, "lab0")
    assert kdops(lab, "start", "lab0").returncode == 0
    with HostConnection(find(lab, "lab0")) as connection:
        boot = connection.run(["cat", "/proc/sys/kernel/random/boot_id"]).text.strip()
        now = float(connection.run(["cat", "/proc/uptime"]).text.split()[0])
        connection.run(["mkdir", "-p", "/var/lib/kdops", "/run/kdops"])
        txn = {"id": "t", "release": "ddtree-1", "phase": "starting", "who": "ann", "boot_id": boot}
        document = {"committed": [], "transaction": txn, "outcome": None}
        connection.upload(json.dumps(document).encode(), "/var/lib/kdops/txn.json")
        connection.upload(
            json.dumps({"transaction": "t", "until": now + 300}).encode(), "/run/kdops/lease.json"
        )
    try:
        for action in ("start", "stop", "restart"):
            refused = kdops(lab, action, "lab0")
            assert refused.returncode == 4
            assert "ann deploys ddtree-1 (phase starting" in refused.stderr
        assert lab.ssh("lab0", "systemctl is-active kdtree-lab0") == "active"
        notes = " ".join(rows(lab, "lab0")[0]["lab0"]["notes"])
        assert "deploy open: ann deploys ddtree-1, phase starting (lease 2" in notes
    finally:
        lab.ssh("lab0", "rm -rf /var/lib/kdops /run/kdops")


def test_a_dead_host_is_a_row_and_delays_no_other(clean_host):
    lab = clean_host("lab0")
    install(lab, "lab0")
    kdops(lab, "start", "lab0")
    lab.cut("lab1")
    try:
        began = time.monotonic()
        found, code = rows(lab)
        assert time.monotonic() - began < 9
    finally:
        lab.heal("lab1")
    assert code == 3
    assert found["lab0"]["state"] == "running"
    assert found["lab1"]["state"] == "unreachable"
    assert "timed out" in found["lab1"]["notes"][0]
    assert rows(lab)[1] == 0


def test_history_reads_whole_lines_only(clean_host):
    lab = clean_host("lab0")
    assert kdops(lab, "history", "lab0", "--json").stdout.split() == ["{", '"history":', "[]", "}"]
    lines = [
        json.dumps({"release": f"r{i}", "result": "committed", "who": "ann", "at": f"t{i}"}) for i in range(5)
    ]
    with HostConnection(find(lab, "lab0")) as connection:
        connection.run(["mkdir", "-p", "/var/lib/kdops"], check=True)
        connection.upload(("\n".join(lines) + '\n{"release": "to').encode(), "/var/lib/kdops/audit.ndjson")
    shown = json.loads(kdops(lab, "history", "lab0", "-n", "2", "--json").stdout)["history"]
    assert [deploy["release"] for deploy in shown] == ["r3", "r4"]
    assert kdops(lab, "history", "lab0").stdout.count("committed") == 5
