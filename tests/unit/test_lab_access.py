"""Names, ssh_config and inventory of a lab, read by the programs that will read them."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import paramiko
import pytest
import yaml

from kdops.errors import UsageError
from kdops.lab import access
from kdops.lab.names import Lab, LabHost, current, host_range

pytestmark = pytest.mark.unit


@pytest.fixture(params=["cache", "with space", "100%h $HOME;'x'"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    made = Lab("lab", tmp_path / request.param)
    made.folder.mkdir(parents=True)
    made.ssh_config.write_text(access.ssh_config(made, host_range(2)))
    return made


def test_openssh_reads_the_config_as_meant(lab: Lab) -> None:
    shown = subprocess.run(
        ["ssh", "-G", "-F", str(lab.ssh_config), "lab1"], capture_output=True, text=True, check=True
    )
    settings = dict(line.split(" ", 1) for line in shown.stdout.splitlines() if " " in line)
    assert settings["hostname"] == "10.77.0.11"
    assert settings["user"] == "root"
    assert settings["stricthostkeychecking"] in ("true", "yes")
    assert settings["identityfile"].replace("%%", "%") == str(access.client_key(lab))
    assert settings["userknownhostsfile"].replace("%%", "%").strip('"') == str(lab.folder / "known_hosts")
    assert shlex.split(settings["proxycommand"].replace("%%", "%"))[-3:] == [
        str(lab.folder / "pipe.py"),
        "%h",
        "%p",
    ]


def test_paramiko_reads_the_config_as_meant(tmp_path: Path) -> None:
    lab = Lab("lab", tmp_path)
    lab.folder.mkdir(parents=True)
    lab.ssh_config.write_text(access.ssh_config(lab, host_range(2)))
    settings = paramiko.SSHConfig.from_path(str(lab.ssh_config)).lookup("lab1")
    assert settings["hostname"] == "10.77.0.11"
    assert settings["identityfile"] == [str(access.client_key(lab))]
    assert shlex.split(settings["proxycommand"])[-3:] == [str(lab.folder / "pipe.py"), "10.77.0.11", "22"]


def test_the_inventory_has_the_group_and_the_way_in(lab: Lab) -> None:
    hosts = yaml.safe_load(access.inventory(lab, host_range(3)))["lab"]["hosts"]
    assert list(hosts) == ["lab0", "lab1", "lab2"]
    assert shlex.split(hosts["lab0"]["ansible_ssh_common_args"]) == ["-F", str(lab.ssh_config)]


@pytest.mark.parametrize("name", ["Lab", "a-b", "1a", "../x", "a" * 17, "a b", "ä", "a\n"])
def test_a_lab_name_that_cannot_name_a_namespace_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDOPS_LAB", name)
    with pytest.raises(UsageError, match="lab name"):
        current()


@pytest.mark.parametrize("count", [0, -1, 65, 10**9])
def test_a_lab_of_impossible_size_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="1 to 64"):
        host_range(count)


def test_labs_of_one_name_in_two_caches_do_not_meet(tmp_path: Path) -> None:
    one, two = Lab("lab", tmp_path / "a"), Lab("lab", tmp_path / "b")
    assert one.prefix != two.prefix
    assert one.machine(LabHost(0)) != two.machine(LabHost(0))
    assert len(one.machine(LabHost(63))) <= 64
