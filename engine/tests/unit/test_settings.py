"""The launcher's environment, credential and file: right values arrive, wrong ones are refused in a
sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdtree_engine.options import RefusedError
from kdtree_engine.serve import config, settings

pytestmark = pytest.mark.unit


def test_systemds_environment_is_read() -> None:
    own = settings.from_environment(
        {
            "KDTREE_DRAIN_SECONDS": "90",
            "CREDENTIALS_DIRECTORY": "/run/credentials/x",
            "RUNTIME_DIRECTORY": "/run/a:/run/b",
            "WATCHDOG_USEC": "30000000",
        }
    )
    assert (own.drain_seconds, own.runtime, own.watchdog_seconds) == (90.0, Path("/run/a"), 30.0)
    assert own.credentials == Path("/run/credentials/x")
    assert settings.from_environment({}).watchdog_seconds is None


@given(st.text() | st.sampled_from(["nan", "inf", "-1", "", "1e999", "0x10"]))
def test_a_drain_time_is_a_number_or_refused(text: str) -> None:
    try:
        seconds = settings.from_environment({"KDTREE_DRAIN_SECONDS": text}).drain_seconds
    except RefusedError as refused:
        assert "KDTREE_DRAIN_SECONDS" in str(refused)
    else:
        assert 0 <= seconds < float("inf")


@pytest.mark.parametrize("content", [b"", b"\n", b"two words\n", b"two\nlines", b"\xff\xfe", b"nul\0"])
def test_an_unusable_key_is_refused_without_showing_it(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "api_key").write_bytes(content)
    with pytest.raises(RefusedError) as refused:
        settings.api_key(tmp_path)
    assert "two" not in str(refused.value)


def test_a_key_is_read_without_its_line_end(tmp_path: Path) -> None:
    assert settings.api_key(None) is None
    assert settings.api_key(tmp_path) is None
    (tmp_path / "api_key").write_text("sentinel\n")
    assert settings.api_key(tmp_path) == "sentinel"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"api-key: x", "systemd credential"),
        (b"admin_api_key: x", "systemd credential"),
        (b"- a list", "no mapping"),
        (b"", "no mapping"),
        (b"a: [", "not YAML"),
        (b"\xff\xfe\x00", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_a_launch_file_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "launch.yaml"
    path.write_bytes(content)
    with pytest.raises(RefusedError, match=words):
        config.check_file(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="No such file"):
        config.check_file(tmp_path / "none.yaml")


def test_polls_stay_out_of_the_access_log() -> None:
    assert config.quiet_paths(["/mine", "/metrics"])[-1] == "/mine"
    assert {"/health", "/metrics", "/ping"} <= set(config.quiet_paths(None))
