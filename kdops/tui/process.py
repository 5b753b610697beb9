"""A kdops command as a process of its own: it goes on when the dashboard has gone."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

COMMAND = (sys.executable, "-P", "-m", "kdops.cli.main")
"""This kdops, whatever lies in the folder that the dashboard was started in."""
_LOOK_S = 0.2


def follow(command: Sequence[str], note: Callable[[str], None]) -> int:
    """Run `command`, hand every line that it says to `note` and return its exit status.

    It writes to a file: a pipe would end it with its reader, at the next line.
    """
    with (
        tempfile.NamedTemporaryFile(prefix="kdops-tui-") as said,
        Path(said.name).open(errors="replace") as heard,
    ):
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        status, rest = None, ""
        while status is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(_LOOK_S)
            *lines, rest = (rest + heard.read()).split("\n")
            for line in lines:
                note(line)
    if rest:
        note(rest)
    return status
