"""`kdops logs`: every line once and in order, whatever happens to the link, sshd and journald."""

from __future__ import annotations

import json
import signal
import subprocess
import threading

import pytest
from conftest import eventually
from host_service import command, environment, find, install, kdops

from kdops.host import HostConnection
from kdops.host.follow import Query, follow

pytestmark = pytest.mark.lab

# Counts until /root/end appears.
COUNTING = """import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
i = 0
while not os.path.exists("/root/end"):
    print("line", i, flush=True)
    i += 1
    time.sleep(0.05)
print("END", flush=True)
time.sleep(1000)
"""
FAULTS = {
    "journald restarted": "systemctl restart systemd-journald",
    "journald killed": "systemctl kill --signal=KILL systemd-journald",
    "journal rotated": "journalctl --rotate",
    "journal vacuumed": "journalctl --rotate; journalctl --vacuum-files=1 --quiet",
    "ssh sessions killed": "pkill -KILL -f 'sshd: root'",
    "sshd restarted": "systemctl restart ssh",
    "journalctl killed": "pkill -KILL -x journalctl",
}


def test_no_line_is_lost_or_doubled(clean_host):
    lab = clean_host("lab0")
    unit = install(lab, "lab0", program=COUNTING)
    seen: list[str] = []
    notes: list[str] = []
    ended = threading.Event()

    def watch() -> None:
        for entry in follow(find(lab, "lab0"), Query(unit, lines=0), notes.append):
            seen.append(entry.message)
            if entry.message == "END":
                ended.set()
                return

    threading.Thread(target=watch, daemon=True).start()
    lab.ssh("lab0", f"rm -f /root/end; systemctl start {unit}")

    def goes_on(what: str) -> None:
        count = len(seen)
        eventually(lambda: len(seen) > count + 3, f"lines go on after: {what}", 30)

    goes_on("the start")
    for what, fault in FAULTS.items():
        lab.ssh("lab0", fault, check=False)  # this command's own session may be what ends
        goes_on(what)
    lab.cut("lab0")
    eventually(lambda: any("connecting again" in note for note in notes[-1:]), "the cut is noticed", 30)
    lab.heal("lab0")
    goes_on("the cut link")
    lab.ssh("lab0", "touch /root/end")
    assert ended.wait(30)
    numbers = [int(line.split()[1]) for line in seen if line.startswith("line ")]
    assert numbers == list(range(len(numbers)))
    assert sum("link lost" in note for note in notes) >= 3
    assert sum("connected again" in note for note in notes) == sum("link lost" in note for note in notes)


SPEAKING = """import os, socket, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
print("before", flush=True)
while not os.path.exists("/root/end"):
    time.sleep(0.05)
print("first\\nsecond", flush=True)
time.sleep(1000)
"""


def test_no_line_is_skipped_when_the_last_one_seen_was_vacuumed_away(clean_host):
    lab = clean_host("lab0")
    unit = install(lab, "lab0", program=SPEAKING)
    lab.ssh("lab0", "journalctl --rotate; journalctl --vacuum-time=1s -q; rm -f /root/end")
    lab.ssh("lab0", f"systemctl start {unit}; journalctl --sync")
    seen: list[str] = []
    notes: list[str] = []

    def watch() -> None:
        for entry in follow(find(lab, "lab0"), Query(unit), notes.append):
            seen.append(entry.message)

    threading.Thread(target=watch, daemon=True).start()
    eventually(lambda: "before" in seen, "the first line is seen")
    forget = "journalctl --rotate; sleep 1.5; journalctl --vacuum-time=1s; touch /root/end"
    in_the_dark = f"until ip link show eth0 | grep -q NO-CARRIER; do sleep 0.05; done; {forget}"
    lab.ssh("lab0", f'systemd-run --quiet sh -c "{in_the_dark}"')
    lab.cut("lab0")
    eventually(lambda: bool(notes), "the cut is noticed", 30)
    lab.heal("lab0")
    eventually(lambda: "second" in seen, "the last line is seen", 30)
    assert seen[-2:] == ["first", "second"]
    assert "before" not in lab.ssh("lab0", f"journalctl -u {unit} -o cat"), "it was vacuumed away"


def test_following_a_unit_that_has_not_spoken_yet(clean_host):
    lab = clean_host("lab0")
    seen: list[str] = []
    query = Query("kdtree-quiet.service", lines=10)

    def watch() -> None:
        for entry in follow(find(lab, "lab0"), query, lambda note: None):
            seen.append(entry.message)

    threading.Thread(target=watch, daemon=True).start()
    followed = "pgrep -f -- '--follow.*--unit=kdtree-quiet|--unit=kdtree-quiet.*--follow'"
    eventually(lambda: bool(lab.ssh("lab0", followed, check=False)), "it is followed")
    lab.ssh("lab0", "pkill -KILL -x journalctl")
    lab.ssh("lab0", "systemd-run --quiet --unit=kdtree-quiet sh -c 'echo at last; sleep 1'")
    eventually(lambda: "at last" in seen, "the first line of all arrives", 20)
    assert seen.count("at last") == 1


@pytest.fixture(scope="module")
def talker(lab):
    """lab0 with a service that has said thirty plain lines and a few odd ones."""
    lab.clean("lab0")
    program = (
        "import os, socket, sys, time\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "for i in range(30): print('plain', i)\n"
        r"sys.stdout.flush(); sys.stdout.buffer.write(b'bell\x07 esc\x1b[2J bad\xff\xfe end\n')" + "\n"
        "print('x' * 40000); print('größe 漢字'); sys.stdout.flush()\n"
        's.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"]); time.sleep(1000)\n'
    )
    unit = install(lab, "lab0", program=program)
    lab.ssh(
        "lab0",
        f"journalctl --rotate; journalctl --vacuum-time=1s -q; systemctl start {unit}; journalctl --sync",
    )
    yield lab
    lab.clean("lab0")


def test_hostile_lines_cannot_act_on_the_terminal(talker):
    shown = kdops(talker, "logs", "lab0").stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert r"bell\x07 esc\x1b[2J bad" in shown
    assert "größe 漢字" in shown
    assert "x" * 40000 in shown


def test_as_json_lines_are_whole(talker):
    lines = [json.loads(line) for line in kdops(talker, "logs", "lab0", "--json").stdout.splitlines()]
    messages = [line["message"] for line in lines]
    assert "bell\x07 esc\x1b[2J bad\ufffd\ufffd end" in messages
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--grep", "^plain", "-n", "3"], ["plain 27", "plain 28", "plain 29"]),
        (["--grep", "plain [12]$"], ["plain 1", "plain 2"]),
        (["--grep", "no such line"], []),
        (["-n", "0"], []),
        (["--since", "1 hour ago", "--grep", "plain 7"], ["plain 7"]),
        (["--since", "2100-01-01"], []),
    ],
)
def test_choosing_lines(talker, options, expected):
    done = kdops(talker, "logs", "lab0", "--json", *options)
    assert done.returncode == 0
    assert [json.loads(line)["message"] for line in done.stdout.splitlines()] == expected


@pytest.mark.parametrize(
    ("options", "said"), [(["--since", "yesterdax"], "is no time"), (["--grep", "("], "regular expression")]
)
def test_wrong_options(talker, options, said):
    done = kdops(talker, "logs", "lab0", *options)
    assert done.returncode == 2
    assert said in done.stderr


def test_following_ends_quietly_with_ctrl_c(talker):
    process = subprocess.Popen(
        command("logs", "lab0", "-f", "-n", "1"),
        env=environment(talker), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline()
    with HostConnection(find(talker, "lab0")) as connection:
        connection.run(["systemctl", "stop", "--no-block", "kdtree-lab0"])
    while "Stopped" not in (line := process.stdout.readline()):
        assert line
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=10)
    assert (process.returncode, words) == (130, "")
