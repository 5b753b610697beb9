"""Compiled for GPUs that are not here, the kernels must fit and must not spill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit


@cache
def resources(what: str) -> dict[str, dict[str, int]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    script = Path(__file__).with_name("resources.py")
    command = [sys.executable, "-W", "ignore", script, what]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return dict(json.loads(result.stdout))


def test_sm_120_kernels_fit_without_spills():
    found = resources("120")
    assert {name: r for name, r in found.items() if r["shared_bytes"] > 101_376} == {}
    assert {name: r for name, r in found.items() if r["spill_bytes"] > 16} == {}


def test_sm_103_kernels_fit_without_spills():
    found = resources("103")
    assert {name: r for name, r in found.items() if r["shared_bytes"] > 232_448} == {}
    assert {name: r for name, r in found.items() if r["spill_bytes"] > 16} == {}


@pytest.mark.parametrize("capability", ["90", "103", "120"])
def test_a_tile_is_copied_while_another_is_computed(capability):
    found = resources(capability)
    late = {name for name, r in found.items() if name != "merge" and not r["overlaps"]}
    assert late == set()


def test_the_hopper_kernel_fits_one_multiprocessor_without_spills():
    found = resources("hopper")["mla"]
    assert found["shared_bytes"] <= 232_448
    assert found["spill_bytes"] == 0
