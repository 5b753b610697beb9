"""`kdops check --offline` as a command: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.unit


def kdops(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kdops.cli.main", "check", *arguments]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def test_a_sound_configuration_is_told_in_under_three_seconds() -> None:
    begun = time.monotonic()
    done = kdops("ct200", "--offline")
    assert time.monotonic() - begun < 3
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].split() == ["STATE", "CHECK", "FOUND"]
    assert "ok     memory model  KV pool of " in done.stdout
    assert "nothing speaks against a deploy; the host was not looked at" in done.stderr


def test_what_would_be_refused_ends_with_five_and_stands_first() -> None:
    done = kdops("ct200", "--offline", "--json", "--set", "engine_memory_fraction=0.81")
    assert done.returncode == 5
    told = json.loads(done.stdout)
    assert (told["host"], told["profile"], told["refused"]) == ("ct200", "linear", True)
    assert told["rows"][0]["state"] == "fail"
    assert told["rows"][0]["remedy"].startswith("--set engine_memory_fraction=0.8")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nobody", "--offline"), 2, "nobody"),
        (("ct200", "--offline", "--profile", "lineer"), 2, "did you mean 'linear'?"),
        (("ct200", "--offline", "--set", "engine_tpp=2"), 2, "did you mean 'engine_tp'?"),
        (("ct200", "--offline", "--set", "engine_tp=many"), 2, "whole number"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(arguments: tuple[str, ...], code: int, said: str) -> None:
    done = kdops(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
