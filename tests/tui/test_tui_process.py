"""Commands that the dashboard starts."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from kdops.tui.process import follow

pytestmark = pytest.mark.unit

LINES = "import sys; print('one'); sys.stdout.flush(); print('zwei \\u00fc', file=sys.stderr); sys.exit(9)"
OUTLIVES = """
import os, sys
with open(sys.argv[1]) as gate:
    gate.read()                       # until the reader has gone
print("still here", flush=True)
with open(sys.argv[2], "w") as told:
    told.write("measured")
"""
READER = "import sys; from kdops.tui.process import follow; follow([sys.executable, *sys.argv[1:]], print)"


def test_every_line_and_the_exit_status_come_back() -> None:
    said: list[str] = []
    assert follow([sys.executable, "-X", "utf8", "-c", LINES], said.append) == 9
    assert said == ["one", "zwei ü"]


def test_a_command_goes_on_when_the_dashboard_has_gone(tmp_path: Path) -> None:
    gate, told = tmp_path / "gate", tmp_path / "told"
    os.mkfifo(gate)
    os.mkfifo(told)
    argv = [sys.executable, "-c", READER, "-c", OUTLIVES, str(gate), str(told)]
    answer = os.open(told, os.O_RDONLY | os.O_NONBLOCK)
    reader = subprocess.Popen(argv)
    with gate.open("w"):  # the command is there and reads
        reader.kill()
        reader.wait()
    ready, _, _ = select.select([answer], [], [], 30)
    assert ready, "the command ended with its reader"
    assert os.read(answer, 100) == b"measured"
    os.close(answer)
