"""kill -9 of `lab up` at any moment: the next `down` or `up` leaves nothing of it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lab_leftovers import leftovers

from kdops.lab.names import Lab, LabHost, current

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab
KDOPS = [sys.executable, "-m", "kdops.cli.main", "lab"]
LAB0, LAB1 = LabHost(0), LabHost(1)
CGROUPS = Path("/sys/fs/cgroup")


def _loop(lab: Lab, host: LabHost) -> bool:
    return str(lab.image(host)) in "".join(
        path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")
    )


def _cgroup(lab: Lab, host: LabHost) -> bool:
    return any((CGROUPS / "unified" / lab.machine(host)).glob("cgroup.procs")) or any(
        CGROUPS.glob(f"*/{lab.machine(host)}")
    )


# each moment of `up`, by what exists when it has come
MOMENTS: dict[str, Callable[[Lab], bool]] = {
    "folder": lambda lab: lab.folder.exists(),
    "client key": lambda lab: (lab.folder / "client_key").exists(),
    "switch": lambda lab: Path("/run/netns", lab.switch).exists(),
    "first host's folder": lambda lab: lab.host_folder(LAB0).exists(),
    "first disk": lambda lab: lab.image(LAB0).exists(),
    "first namespace": lambda lab: Path("/run/netns", lab.machine(LAB0)).exists(),
    "second disk": lambda lab: lab.image(LAB1).exists(),
    "second namespace": lambda lab: Path("/run/netns", lab.machine(LAB1)).exists(),
    "ssh_config": lambda lab: lab.ssh_config.exists(),
    "first cgroup": lambda lab: _cgroup(lab, LAB0),
    "first loop device": lambda lab: _loop(lab, LAB0),
    "second cgroup": lambda lab: _cgroup(lab, LAB1),
    "second loop device": lambda lab: _loop(lab, LAB1),
    "complete": lambda lab: (lab.folder / "complete.json").exists(),
}


@pytest.fixture
def crash(lab: LabHandle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab of its own beside the session's; the root file system they share is built."""
    monkeypatch.setenv("KDOPS_LAB", "crash")
    mine = current()
    assert leftovers(mine) == []
    yield mine
    subprocess.run([*KDOPS, "down"], check=True, capture_output=True)


def _start(*args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*KDOPS, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _kill_at(up: subprocess.Popen[bytes], reached: Callable[[], bool], pause: float) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline and (up.poll() is None or reached()), (
            "`lab up` ended before that moment"
        )
    time.sleep(pause)  # a random moment after it is the point of the test
    up.kill()
    up.wait()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "pause",
    [
        pytest.param(0.0, id="at once"),
        pytest.param(random.uniform(0.0, 0.08), id="a little later", marks=pytest.mark.matrix),
    ],
)
def test_down_after_kill_leaves_nothing(crash: Lab, moment: str, pause: float) -> None:
    _kill_at(_start("up", "2"), lambda: MOMENTS[moment](crash), pause)
    assert leftovers(crash) != [], "nothing was there to remove"
    subprocess.run([*KDOPS, "down"], check=True, capture_output=True)
    assert leftovers(crash) == [], f"killed {pause:.3f} s after {moment}"


@pytest.mark.parametrize("moment", ["first namespace", "first loop device"])
def test_up_after_kill_gives_a_whole_lab(crash: Lab, moment: str) -> None:
    _kill_at(_start("up", "2"), lambda: MOMENTS[moment](crash), random.uniform(0.0, 0.08))
    subprocess.run([*KDOPS, "up", "1"], check=True, capture_output=True)
    answer = ["ssh", "-F", str(crash.ssh_config), "-oBatchMode=yes", "lab0", "systemctl is-system-running"]
    assert subprocess.run(answer, capture_output=True, text=True).stdout.strip() == "running"
    assert not Path("/run/netns", crash.machine(LAB1)).exists()
    subprocess.run([*KDOPS, "down"], check=True, capture_output=True)
    assert leftovers(crash) == []


def test_two_ups_of_one_name_take_turns_and_down_spares_other_labs(crash: Lab, lab: LabHandle) -> None:
    ups = [_start("up", "1"), _start("up", "1")]
    assert [up.wait(timeout=120) for up in ups] == [0, 0]
    subprocess.run([*KDOPS, "down"], check=True, capture_output=True)
    assert leftovers(crash) == []
    assert lab.ssh("lab0", "echo still here") == "still here"
    assert lab.ssh("lab1", "echo still here") == "still here"


def test_kill_during_the_root_build_leaves_nothing(
    lab: LabHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDOPS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KDOPS_LAB", "crash")
    crash = current()
    building = tmp_path / "cache" / "lab"
    _kill_at(
        _start("up", "1"), lambda: any(building.glob("root-*.tmp/root/var/lib/dpkg")), random.uniform(0.0, 2)
    )
    assert any(building.glob("root-*.tmp"))
    subprocess.run([*KDOPS, "down"], check=True, capture_output=True)
    assert leftovers(crash) == []
    assert [path.name for path in building.iterdir() if path.is_dir()] == []


@pytest.mark.matrix
def test_kill_during_the_environment_build_leaves_nothing(
    lab: LabHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    shutil.copytree(lab.lab.cache / "wheels", cache / "wheels", copy_function=os.link)
    monkeypatch.setenv("KDOPS_CACHE", str(cache))
    monkeypatch.setenv("KDOPS_LAB", "crash")
    crash = current()
    up = _start("up", "1")
    installing = "root-*.tmp/root/opt/kdops/venvs/*.partial-*/lib"
    deadline = time.monotonic() + 300
    while not any((cache / "lab").glob(installing)):
        assert time.monotonic() < deadline and up.poll() is None
        time.sleep(0.1)
    up.kill()
    up.wait()
    subprocess.run([*KDOPS, "down"], check=True, capture_output=True)
    assert leftovers(crash) == []
