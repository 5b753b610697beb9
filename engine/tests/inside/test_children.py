"""Which of the launcher's processes ended, and how, from real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from kdtree_engine.sglang import compat


def test_a_process_that_a_signal_ended_comes_before_those_that_gave_up() -> None:
    commands = {"scheduler_TP0": "raise SystemExit(3)", "scheduler_TP1": "input()", "detokenizer": "input()"}
    started = {
        title: subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        for title, code in commands.items()
    }
    titles = {process.pid: title for title, process in started.items()}
    try:
        started["scheduler_TP1"].send_signal(signal.SIGKILL)
        for title in ("scheduler_TP0", "scheduler_TP1"):
            os.waitid(os.P_PID, started[title].pid, os.WEXITED | os.WNOWAIT)
        assert compat.ended(titles) == ["scheduler_TP1 (signal 9)", "scheduler_TP0 (exit 3)"]
        started["scheduler_TP0"].wait()  # as when SGLang looks after its processes itself
        assert compat.ended(titles) == ["scheduler_TP1 (signal 9)", "scheduler_TP0"]
    finally:
        for process in started.values():
            process.communicate(b"\n")
