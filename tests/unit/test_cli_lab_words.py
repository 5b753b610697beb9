"""A lab that is down has other remedies than a host in a rack."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdops.cli.lab_words import better
from kdops.errors import KdopsError, UnreachableError, UsageError
from kdops.lab import control, names

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDOPS_CACHE", str(tmp_path))
    monkeypatch.setenv("KDOPS_LAB", "none")


def test_a_lab_that_is_down_is_raised() -> None:
    config = names.current().ssh_config
    error = UsageError("ssh refuses its settings", cause=f"Can't open user config file {config}", remedy="r")
    told = better(error)
    assert (told.code, told.remedy) == (3, "kdops lab up")
    assert "'none' is down" in told.title


def test_a_lab_that_is_not_up_has_one_remedy_everywhere() -> None:
    with pytest.raises(KdopsError) as caught:
        control.find(names.current(), "lab0")
    assert caught.value.remedy == "kdops lab up"


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("ct200: timed out", cause="no answer", remedy="r"),
        KdopsError("x", cause="c", remedy="r"),
    ],
)
def test_other_errors_stay(error: KdopsError) -> None:
    assert better(error) is error


def test_a_lab_name_that_is_none_hides_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDOPS_LAB", "../no name")
    error = UnreachableError("lab0: timed out", cause="no answer", remedy="r")
    assert better(error) is error


@pytest.mark.parametrize(
    ("on", "linked", "title", "remedy"),
    [
        (False, True, "lab0: the lab host is switched off", "kdops lab on lab0"),
        (True, False, "lab0: the lab host's link is cut", "kdops lab heal lab0"),
        (True, True, "lab0: ProxyCommand failed", "run it by hand: nsenter"),
    ],
)
def test_a_lab_host_that_is_off_or_cut(
    monkeypatch: pytest.MonkeyPatch, on: bool, linked: bool, title: str, remedy: str
) -> None:
    lab = names.current()
    lab.ssh_config.parent.mkdir(parents=True)
    lab.ssh_config.touch()
    (lab.folder / "complete.json").write_text('{"hosts": 1, "root": "/r"}')
    monkeypatch.setattr("kdops.lab.machine.is_on", lambda *_: on)
    monkeypatch.setattr("kdops.lab.network.link_is_up", lambda *_: linked)
    error = UnreachableError("lab0: ProxyCommand failed", cause="c", remedy="run it by hand: nsenter")
    told = better(error)
    assert (told.code, told.title, told.remedy) == (3, title, remedy)
    other = UnreachableError("ct200: timed out", cause="c", remedy="try `ssh` by hand")
    assert better(other) is other


def test_what_a_deploy_promises_of_a_lost_host_is_not_replaced() -> None:
    lab = names.current()
    lab.ssh_config.parent.mkdir(parents=True)
    lab.ssh_config.touch()
    lost = UnreachableError(
        "lab0: the host was lost at 'Upload the files'",
        cause="c",
        remedy="the release that served before still serves; when the host is back: kdops status lab0",
    )
    assert better(lost) is lost
