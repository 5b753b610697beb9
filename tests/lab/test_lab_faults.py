"""Power, link and access of real lab hosts."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdops.errors import UsageError
from kdops.lab.locking import locked

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab


def test_a_host_is_its_own_machine_without_the_machines_network(lab: LabHandle) -> None:
    assert lab.ssh("lab0", "ps -p 1 -o comm=") == "systemd"
    assert lab.ssh("lab0", "hostname") == "lab0"
    assert lab.ssh("lab0", "systemctl is-system-running") == "running"
    assert "default" not in lab.ssh("lab0", "ip route")
    root_links = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True).stdout
    assert "10.77." not in root_links


def test_kill_loses_the_host_and_on_keeps_disk_and_journal(lab: LabHandle) -> None:
    boot = lab.ssh(
        "lab0", "cat /proc/sys/kernel/random/boot_id; logger -t keep before; echo kept >/root/kept"
    )
    lab.ssh("lab0", "journalctl --sync")
    assert boot
    lab.kill("lab0")
    assert not lab.is_on("lab0")
    assert lab.ssh("lab1", "echo here") == "here"
    assert lab.on("lab0") in ("running", "degraded")
    assert lab.ssh("lab0", "cat /root/kept; rm /root/kept") == "kept"
    assert lab.ssh("lab0", "journalctl -t keep -o cat") == "before"


def test_a_cut_link_is_silent_while_the_host_goes_on(lab: LabHandle) -> None:
    beat = "while sleep 0.1; do date +%s >/run/beat.new; mv /run/beat.new /run/beat; done"
    lab.ssh("lab1", f"systemd-run --quiet --unit=beat sh -c '{beat}'")
    lab.cut("lab1")
    command = ["ssh", "-F", str(lab.ssh_config), "-oBatchMode=yes", "-oConnectTimeout=2", "lab1", "true"]
    started = time.time()
    try:
        refused = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=20
        )
    finally:
        lab.heal("lab1")
    assert refused.returncode == 255
    assert int(lab.ssh("lab1", "cat /run/beat; systemctl stop beat")) >= int(started) + 1


def test_a_host_keeps_no_lock_of_the_command_that_switched_it_on(lab: LabHandle, tmp_path: Path) -> None:
    """Whoever runs `flock FILE kdops lab on` must not find FILE locked for as long as the host is on."""
    lab.kill("lab1")
    with locked(tmp_path / "lock", None) as held:
        assert held is not None
        lab.on("lab1")
    with locked(tmp_path / "lock", None) as again:
        assert again is not None


def test_a_reboot_from_inside_comes_back(lab: LabHandle) -> None:
    before = lab.ssh("lab1", "systemctl show --property=UserspaceTimestampMonotonic --value")
    lab.ssh("lab1", "systemctl reboot", check=False)
    deadline = time.monotonic() + 30
    after = ""
    while time.monotonic() < deadline and after in ("", before):
        after = lab.ssh("lab1", "systemctl show --property=UserspaceTimestampMonotonic --value", check=False)
    assert after not in ("", before)


def test_an_unknown_host_is_refused_with_the_names_there_are(lab: LabHandle) -> None:
    with pytest.raises(UsageError) as refused:
        lab.kill("lab7")
    assert "lab0, lab1" in refused.value.cause
