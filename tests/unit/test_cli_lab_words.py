"""A lab that is down has other remedies than a host in a rack."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdops.cli.lab_words import better
from kdops.errors import KdopsError, UnreachableError, UsageError
from kdops.lab import names

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
