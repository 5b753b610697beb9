"""A rank killed in the middle of a request on several GPUs: how the launcher ends, and that a restart serves.

python engine/benchmarks/rank_loss.py RESULTS.json --tp 2
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from equality import Results
from gpu_servers import PAIR, READY_SECONDS, Arm, Server, Setup, free_port, plugin_site, stop_in_time

WATCHDOG_SECONDS = 30.0


def launch(folder: Path, tp: int) -> Server:
    """The launcher, as the unit starts it, with the tiny pair in bf16 and a tree of 16 rows."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    flags = {
        "model-path": str(PAIR / "target"),
        "speculative-algorithm": "DDTREE",
        "speculative-draft-model-path": str(PAIR / "drafter"),
        "ddtree-budget": 16,
        "tp-size": tp,
        "disable-custom-all-reduce": True,
        "attention-backend": "triton",
        "sampling-backend": "pytorch",
        "mem-fraction-static": 0.5,
        "max-total-tokens": 65536,
        "max-running-requests": 8,
        "cuda-graph-bs-decode": [1, 8],
        "cuda-graph-backend-prefill": "disabled",
        "port": port,
    }
    config = folder / "launch.yaml"
    config.write_text(json.dumps(flags))
    site = plugin_site(folder / "site", exact=False)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    variables = {"PYTHONPATH": path, "RUNTIME_DIRECTORY": str(folder)}
    log = folder / "launcher.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kdtree_engine.serve", "--config", str(config)],
            env={**os.environ, **variables, "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(Arm("launcher"), Setup(tp=tp), port, process, log)


def until_ready(server: Server) -> None:
    """Wait for the launcher's own word. Raises RuntimeError when it ends before."""
    deadline = time.monotonic() + READY_SECONDS
    while "kdtree: ready" not in server.log.read_text(errors="replace"):
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the launcher did not get ready:\n{server.tail()}")
        time.sleep(0.2)


def rank_process(rank: int, launcher: int) -> int:
    """The pid of this rank's scheduler below the launcher."""
    found = subprocess.run(
        ["pgrep", "--parent", str(launcher), "--full", f"sglang::scheduler_TP{rank}"],
        capture_output=True,
        text=True,
    )
    return int(found.stdout.split()[0])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", type=Path)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--logs", type=Path, help="folder for the launcher's logs")
    parser.add_argument("--deadline", type=float, default=0.0, help="stop before this time (time.time)")
    asked = parser.parse_args(arguments)
    if asked.deadline:
        stop_in_time(asked.deadline)
    results = Results(asked.results)
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.logs or Path(temporary)
        server = launch(folder / "killed", asked.tp)
        try:
            until_ready(server)

            def long_request() -> None:
                with contextlib.suppress(OSError, ValueError):
                    server.generate([5, 6, 7], 7000)

            threading.Thread(target=long_request, daemon=True).start()
            time.sleep(1.0)
            last = asked.tp - 1
            os.kill(rank_process(last, server.process.pid), signal.SIGKILL)
            began = time.monotonic()
            code = server.process.wait(2 * WATCHDOG_SECONDS)
            results.put(
                "rank killed mid-request",
                {
                    "rank": last,
                    "exit_code": code,
                    "seconds": round(time.monotonic() - began, 2),
                    "watchdog_seconds": WATCHDOG_SECONDS,
                    "last_line": server.tail(1),
                },
            )
        finally:
            server.stop()
        again = launch(folder / "restarted", asked.tp)
        try:
            until_ready(again)
            answer = again.generate([5, 6, 7], 32)
            results.put("restart", {"tokens": len(answer["output_ids"])})
        finally:
            again.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
