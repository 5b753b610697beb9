"""A rank killed in the middle of a request on several GPUs: how the launcher ends, and that a restart serves.

python engine/benchmarks/rank_loss.py RESULTS.json --tp 2
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from runs import options, planned, running
from servers import READY_SECONDS, Server, Setup, ddtree, flags, free_port, start

WATCHDOG_SECONDS = 30.0
ARM = ddtree(16)


@contextlib.contextmanager
def launched(setup: Setup, folder: Path) -> Iterator[Server]:
    """The launcher, as the unit starts it, once it says that it is ready. Raises RuntimeError when it ends
    before.
    """
    folder.mkdir(parents=True)
    port, config = free_port(), folder / "launch.yaml"
    # SGLang's warm-up is what the launcher waits for.
    named = flags(ARM, setup) | {"port": port}
    del named["skip-server-warmup"]
    config.write_text(json.dumps(named))  # JSON is YAML
    own = {"RUNTIME_DIRECTORY": str(folder), "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}
    setup = replace(setup, environment=tuple(own.items()))
    command = ["-m", "kdtree_engine.serve", "--config", str(config)]
    server = start(ARM, setup, folder, command, port, folder / "launcher.log")
    try:
        deadline = time.monotonic() + READY_SECONDS
        while "kdtree: ready" not in server.log.read_text(errors="replace"):
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the launcher did not get ready:\n{server.tail()}")
            time.sleep(0.2)
        yield server
    finally:
        server.stop()


def rank_process(rank: int, launcher: int) -> int:
    """The pid of this rank's scheduler below the launcher. Raises IndexError when there is none."""
    found = subprocess.run(
        ["pgrep", "--parent", str(launcher), "--full", f"sglang::scheduler_TP{rank}"],
        capture_output=True,
        text=True,
    )
    return int(found.stdout.split()[0])


def main(arguments: Sequence[str]) -> int:
    parser = options(__doc__, waits=False)
    parser.set_defaults(tp=2)
    asked = parser.parse_args(arguments)
    setup = Setup(exact=False, batches=(1, 8), tp=asked.tp, device=asked.device)
    if asked.plan:
        return planned([[(ARM, setup)]])
    if importlib.util.find_spec("sdnotify") is None:
        parser.error("the launcher needs sdnotify: install it, or put a release's site/ on PYTHONPATH")
    with running(asked) as (results, folder):
        with launched(setup, folder / "killed") as server:

            def long_request() -> None:
                with contextlib.suppress(OSError, ValueError):
                    server.generate([5, 6, 7], 7000)

            threading.Thread(target=long_request, daemon=True).start()
            time.sleep(1.0)
            last = asked.tp - 1
            os.kill(rank_process(last, server.process.pid), signal.SIGKILL)
            began = time.monotonic()
            code = server.process.wait(2 * WATCHDOG_SECONDS)
            found = {
                "rank": last,
                "exit_code": code,
                "seconds": round(time.monotonic() - began, 2),
                "watchdog_seconds": WATCHDOG_SECONDS,
                "last_line": server.tail(1),
            }
            results.put("rank killed mid-request", found)
        with launched(setup, folder / "restarted") as again:
            answer = again.generate([5, 6, 7], 32)
            results.put("restart", {"tokens": len(answer["output_ids"])})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
