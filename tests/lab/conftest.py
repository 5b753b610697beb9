"""A lab of two real systemd hosts for the whole test session, beside the one a person may run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kdops.lab import control, machine
from kdops.lab.locking import locked
from kdops.lab.names import Lab, LabHost, current

# What a test may have left on a host. Environments (/opt/kdops/venvs) stay: they are gigabytes.
_CLEAN = r"""
list='systemctl list-units --all --plain --no-legend'
$list 'kdtree-*' 'kdops-*' | awk '{print $1}' | while read -r unit; do
  systemctl kill --signal=KILL "$unit" 2>/dev/null
  systemctl stop "$unit" 2>/dev/null
done
rm -rf /opt/kdops/releases /opt/kdops/current /opt/kdops/guard /var/lib/kdops /etc/kdops
for folder in /etc/systemd/system /run/systemd/system; do
  rm -rf "$folder"/kdtree-* "$folder"/kdops-* "$folder"/*.wants/kdtree-* "$folder"/*.wants/kdops-*
done
systemctl daemon-reload
systemctl reset-failed
true
"""


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class LabHandle:
    """The running lab, by host name."""

    lab: Lab
    hosts: tuple[str, ...]

    @property
    def inventory(self) -> Path:
        return self.lab.inventory

    @property
    def ssh_config(self) -> Path:
        return self.lab.ssh_config

    def ssh(self, host: str, command: str, *, check: bool = True, timeout: float = 60) -> str:
        """Run a shell command on a host as root and return its stdout, stripped; a failure fails the test."""
        options = ["-F", str(self.ssh_config), "-oBatchMode=yes", "-oConnectTimeout=5"]
        done = subprocess.run(
            ["ssh", *options, host, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            pytest.fail(f"on {host}: {command!r} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout.strip()

    def kill(self, host: str) -> None:
        """Pull the plug; returns when the host is gone."""
        control.kill(self.lab, host, _to_stderr)

    def on(self, host: str) -> str:
        """Switch on and wait for SSH; returns systemd's state."""
        return control.power_on(self.lab, host, _to_stderr)

    def cut(self, host: str) -> None:
        """Cut the link; the host goes on."""
        control.set_link(self.lab, host, _to_stderr, up=False)

    def heal(self, host: str) -> None:
        """Connect the link again."""
        control.set_link(self.lab, host, _to_stderr, up=True)

    def is_on(self, host: str) -> bool:
        return machine.is_on(self.lab, self.find(host))

    def find(self, host: str) -> LabHost:
        return control.find(self.lab, host)[0]

    def clock(self, host: str) -> str:
        """The host's time, for `count_starts`."""
        return self.ssh(host, "date +@%s")

    def count_starts(self, host: str, since: str) -> None:
        """Add the engine's starts on a host since then to those of the whole test run (.ci/run)."""
        if counter := os.environ.get("KDOPS_ENGINE_STARTS"):
            journal = f"journalctl -u kdtree-{host} --since {since} -o cat"
            starts = int(self.ssh(host, f"{journal} | grep -c '^Starting '", check=False) or 0)
            with Path(counter).open("a") as file:
                file.write(f"{host}\n" * starts)

    def clean(self, host: str) -> None:
        """Bring a host back to on, connected, without anything of kdops but its environments."""
        if not self.is_on(host):
            self.on(host)
        self.heal(host)
        self.ssh(host, _CLEAN)


@pytest.fixture(scope="session")
def lab() -> Iterator[LabHandle]:
    """Two fresh hosts, lab0 and lab1, taken down at the end; a second test session waits for its turn."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.fail("lab tests boot systemd hosts: run them as root on Debian or Ubuntu (make test)")
    os.environ.setdefault("KDOPS_LAB", "test")
    mine = current()
    turn = mine.cache / "lab" / f"{mine.name}.tests.lock"
    with locked(turn, lambda: _to_stderr("another test session uses this lab; waiting")) as lock:
        assert lock is not None
        os.set_inheritable(lock, False)
        control.down(mine, _to_stderr)
        hosts = control.up(mine, 2, _to_stderr)
        yield LabHandle(mine, tuple(host.name for host in hosts))
        control.down(mine, _to_stderr)


@pytest.fixture
def clean_host(lab: LabHandle) -> Iterator[Callable[[str], LabHandle]]:
    """Call it with a host's name to get that host clean now; it is cleaned again after the test."""
    used: list[str] = []

    def clean(host: str) -> LabHandle:
        lab.clean(host)
        used.append(host)
        return lab

    yield clean
    for host in used:
        lab.clean(host)


def eventually(condition: Callable[[], bool], what: str, seconds: float = 10) -> None:
    """Poll until `condition` holds; fail the test, naming `what` was awaited, after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.02)
