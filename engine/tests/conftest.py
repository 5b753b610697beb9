"""Fixtures of the engine's tests. Those under inside/ need SGLang: test_inside.py runs them there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from harness import EngineHome, make_home

if importlib.util.find_spec("sglang") is None:
    collect_ignore = ["inside", "kernels", "attention"]


@pytest.fixture(scope="session")
def engine_home(tmp_path_factory: pytest.TempPathFactory) -> EngineHome:
    """A Python with SGLang on the CPU, and this checkout's engine installed beside it as a release has it."""
    return make_home(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def models() -> Path:
    """The tiny trained pair: target/, drafter/ and prompts.json."""
    return Path(__file__).parents[2] / "models" / "tiny-pair"
