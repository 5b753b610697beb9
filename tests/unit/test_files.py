"""Files that a person named: no device, no pipe and no size holds a command up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kdops.files import pieces, require_regular

pytestmark = pytest.mark.unit


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("size", [0, 1, 1 << 16, (1 << 17) + 1])
def test_a_file_comes_whole(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    assert b"".join(pieces(tmp_path / "file")) == content


def test_a_pipe_that_nobody_writes_to_is_told(pipe: Path) -> None:
    with pytest.raises(OSError, match="nobody writes to this pipe"):
        list(pieces(pipe))


# Longer than a writer is waited for: it has the pipe open, so it will say something.
@pytest.mark.parametrize("pause", ["", "sleep 2.5;"])
def test_a_pipe_is_read_to_its_writer_s_end(pipe: Path, pause: str) -> None:
    with subprocess.Popen(["sh", "-c", f"exec >{pipe}; {pause} echo one; echo two"]):
        assert b"".join(pieces(pipe)) == b"one\ntwo\n"


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/", "/nonexistent"])
def test_what_is_no_file_is_told(path: str) -> None:
    with pytest.raises(OSError):
        list(pieces(Path(path)))
    with pytest.raises(OSError):
        require_regular(Path(path))


def test_a_pipe_cannot_be_read_again(pipe: Path) -> None:
    with pytest.raises(OSError, match="a device or a pipe"):
        require_regular(pipe)
