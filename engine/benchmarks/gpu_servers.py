"""Starts SGLang servers of the tiny pair on one GPU and asks them for tokens."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
PAIR = CHECKOUT / "models" / "tiny-pair"
READY_SECONDS = 240.0
# fp32 means fp32: neither cuBLAS nor Triton may round products to TF32.
EXACT = {
    "NVIDIA_TF32_OVERRIDE": "0",
    "TRITON_F32_DEFAULT": "ieee",
    "SGLANG_FORCE_FUSED_OP_BACKEND": "torch",
}


@dataclass(frozen=True)
class Arm:
    """name; algorithm: None for plain decoding; flags: DDTREE's own."""

    name: str
    algorithm: str | None = None
    flags: tuple[str, ...] = ()


def ddtree(budget: int, topk: int = 4) -> Arm:
    name = f"ddtree-{budget}" if topk > 1 else "ddtree-chain"
    return Arm(name, "DDTREE", (f"--ddtree-budget={budget}", f"--ddtree-topk-cap={topk}"))


AUTOREGRESSIVE, LINEAR, CHAIN = Arm("autoregressive"), Arm("dflash", "DFLASH"), ddtree(8, topk=1)


@dataclass(frozen=True)
class Setup:
    """exact: fp32 without TF32, else bf16 with SGLang's own kernels."""

    graphs: bool
    page: int
    exact: bool = True

    def __str__(self) -> str:
        return f"{'graphs' if self.graphs else 'eager'}/page{self.page}/{'fp32' if self.exact else 'bf16'}"


@dataclass
class Server:
    arm: Arm
    setup: Setup
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def generate(self, ids: Sequence[int], tokens: int, **sampling: Any) -> dict[str, Any]:
        """Greedy, exactly `tokens` tokens. Raises OSError when the server is gone."""
        parameters = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **sampling}
        body = json.dumps({"input_ids": list(ids), "sampling_params": parameters}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/generate", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def ready(self) -> bool:
        url = f"http://127.0.0.1:{self.port}/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return True
        return False

    def comes_up(self) -> bool:
        """Wait until it serves; False, with the end of its log printed, when it does not."""
        deadline = time.monotonic() + READY_SECONDS
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])
                print(f"{self.log.stem} did not start:\n{tail}", flush=True)
                return False
            time.sleep(0.5)
        return True


def _plugin_site(folder: Path, *, exact: bool) -> Path:
    """A folder for PYTHONPATH through which SGLang finds the plugin of this checkout."""
    plugins = ["kdtree = kdtree_engine.sglang:register", *(["fp32 = fp32_plugin:register"] if exact else [])]
    info = folder / "kdtree_engine-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kdtree-engine\nVersion: 0\n")
    (info / "entry_points.txt").write_text("\n".join(["[sglang.srt.plugins]", *plugins, ""]))
    for link, target in (("kdtree_engine", "kdtree_engine"), ("fp32_plugin.py", "benchmarks/fp32_plugin.py")):
        if not (folder / link).exists():
            (folder / link).symlink_to(CHECKOUT / "engine" / target)
    return folder


@contextlib.contextmanager
def serving(wanted: Sequence[tuple[Arm, Setup]], folder: Path) -> Iterator[list[Server]]:
    """The servers, all at once on the first GPU; those that do not come up are left out. Killed at the
    end.
    """
    servers: list[Server] = []
    try:
        for arm, setup in wanted:
            servers.append(_start(arm, setup, folder))
        with concurrent.futures.ThreadPoolExecutor(max(1, len(servers))) as pool:
            came = list(pool.map(Server.comes_up, servers))
        yield [server for server, up in zip(servers, came, strict=True) if up]
    finally:
        for server in servers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.process.pid, signal.SIGKILL)
            server.process.wait()


def _start(arm: Arm, setup: Setup, folder: Path) -> Server:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = [
        f"--port={port}",
        f"--model-path={PAIR / 'target'}",
        f"--dtype={'float32' if setup.exact else 'bfloat16'}",
        "--attention-backend=triton",
        "--sampling-backend=pytorch",
        "--mem-fraction-static=0.3",
        "--max-total-tokens=65536",
        "--max-running-requests=8",
        f"--page-size={setup.page}",
        "--chunked-prefill-size=1024",
        "--skip-server-warmup",
        "--cuda-graph-backend-prefill=disabled",
        *(["--cuda-graph-bs-decode", "1", "8"] if setup.graphs else ["--cuda-graph-backend-decode=disabled"]),
    ]
    if arm.algorithm is not None:
        flags += [
            f"--speculative-algorithm={arm.algorithm}",
            f"--speculative-draft-model-path={PAIR / 'drafter'}",
        ]
    log = folder / f"{arm.name}-{str(setup).replace('/', '-')}.log"
    site = _plugin_site(folder / ("exact" if setup.exact else "stock"), exact=setup.exact)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    own = {
        "PYTHONPATH": path,
        "HF_HUB_OFFLINE": "1",
        "KDTREE_TRY_GRAPHS": "1",
        **(EXACT if setup.exact else {}),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", *flags, *arm.flags],
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(arm, setup, port, process, log)
