"""SGLang servers that differ only in their verify attention, on the first GPU."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpu_servers import AUTOREGRESSIVE, EXACT, PAIR, Arm, Server, Setup
from gpu_servers import _plugin_site as plugin_site

COMMON = (
    "--attention-backend=triton", "--sampling-backend=pytorch", "--skip-server-warmup",
    "--cuda-graph-backend-prefill=disabled", "--random-seed=1",
)  # fmt: skip
TINY = (
    f"--model-path={PAIR / 'target'}", "--dtype=float32", "--mem-fraction-static=0.3",
    "--max-total-tokens=65536", "--max-running-requests=8", "--chunked-prefill-size=1024",
    "--cuda-graph-bs-decode", "1", "8",
)  # fmt: skip


def tiny_flags(arm: Arm) -> list[str]:
    """The tiny pair in fp32 under `arm`."""
    draft = () if arm.algorithm is None else draft_flags(arm.algorithm, PAIR / "drafter")
    return [*TINY, *draft, *arm.flags]


def draft_flags(algorithm: str, drafter: Path) -> tuple[str, ...]:
    return f"--speculative-algorithm={algorithm}", f"--speculative-draft-model-path={drafter}"


def start(
    name: str, attention: str, flags: Sequence[str], folder: Path, *, exact: bool, extra: Mapping[str, str]
) -> Server:
    """Start one server; `attention` is stock or kdtree. Does not wait for it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    site = plugin_site(folder / ("exact" if exact else "stock"), exact=exact)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "KDTREE_VERIFY_ATTENTION": attention, **extra}
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", f"--port={port}", *COMMON, *flags],
            env={**os.environ, **(EXACT if exact else {}), **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(AUTOREGRESSIVE, Setup(graphs=True, page=1, exact=exact), port, process, log)


@contextlib.contextmanager
def killing(servers: Sequence[Server]) -> Iterator[None]:
    """Kill every server at the end, whatever happened."""
    try:
        yield
    finally:
        for server in servers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()


def wait_up(server: Server, deadline: float) -> bool:
    """Until it serves or `deadline` (monotonic); False, with the end of its log printed, otherwise."""
    while not server.ready():
        if server.process.poll() is not None or time.monotonic() > deadline:
            lines = server.log.read_text(errors="replace").splitlines()
            print(f"{server.log.stem} did not start:", *lines[-200:], sep="\n", flush=True)
            return False
        time.sleep(0.5)
    return True
