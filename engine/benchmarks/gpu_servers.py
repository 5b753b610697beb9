"""Starts SGLang servers of one model pair on the visible GPUs, in waves, and asks them for tokens."""

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
READY_SECONDS, ANSWER_SECONDS = 240.0, 180
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
ARMS = (AUTOREGRESSIVE, LINEAR, CHAIN, ddtree(8), ddtree(16), ddtree(32))


def arms(names: Sequence[str]) -> list[Arm]:
    """The arms with these names, in that order. Raises KeyError for another name."""
    known = {arm.name: arm for arm in ARMS}
    return [known[name] for name in names]


@dataclass(frozen=True)
class Setup:
    """exact: fp32 without TF32, else bf16 with SGLang's own kernels. batches: captured batch sizes.

    target, drafter: model folders; extra: further flags; environment: further variables.
    """

    graphs: bool = True
    page: int = 1
    exact: bool = True
    batches: tuple[int, ...] = (1, 8, 32)
    tp: int = 1
    target: Path = PAIR / "target"
    drafter: Path = PAIR / "drafter"
    extra: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        kind = f"{'graphs' if self.graphs else 'eager'}/page{self.page}/{'fp32' if self.exact else 'bf16'}"
        return kind if self.tp == 1 else f"{kind}/tp{self.tp}"


@dataclass
class Server:
    arm: Arm
    setup: Setup
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def generate(
        self, ids: Sequence[int], tokens: int, *, body: dict[str, Any] | None = None, **sampling: Any
    ) -> Any:
        """Greedy and exactly `tokens` tokens unless `sampling` says otherwise; a list for n above 1.

        Raises OSError when the server is gone.
        """
        parameters = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **sampling}
        asked = json.dumps({"input_ids": list(ids), "sampling_params": parameters, **(body or {})}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/generate", asked, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return json.load(answer)

    def ready(self) -> bool:
        url = f"http://127.0.0.1:{self.port}/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return True
        return False

    def comes_up(self) -> bool:
        """Wait until it serves; False, with the end of its log printed, when it does not."""
        began = time.monotonic()
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > began + READY_SECONDS:
                print(f"{self.log.stem} did not start:\n{self.tail()}", flush=True)
                return False
            time.sleep(0.5)
        print(f"{self.log.stem} serves after {time.monotonic() - began:.0f} s", flush=True)
        return True

    def tail(self, lines: int = 60) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def pause(self) -> None:
        """Stop its processes, so that an idle server's loops take nothing from the one being timed."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.killpg(self.process.pid, signal.SIGCONT)

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def plugin_site(folder: Path, *, exact: bool) -> Path:
    """A folder for PYTHONPATH through which SGLang finds the plugin of this checkout."""
    plugins = ["kdtree = kdtree_engine.sglang:register", *(["fp32 = fp32_plugin:register"] if exact else [])]
    info = folder / "kdtree_engine-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kdtree-engine\nVersion: 0\n")
    (info / "entry_points.txt").write_text("\n".join(["[sglang.srt.plugins]", *plugins, ""]))
    for link, target in (("kdtree_engine", "kdtree_engine"), ("fp32_plugin.py", "benchmarks/fp32_plugin.py")):
        with contextlib.suppress(FileExistsError):
            (folder / link).symlink_to(CHECKOUT / "engine" / target)
    return folder


Wave = Sequence[tuple[Arm, Setup]]


@contextlib.contextmanager
def serving(wanted: Wave, folder: Path) -> Iterator[list[Server]]:
    """The servers, all at once; those that do not come up are left out. Killed at the end."""
    servers = [_start(arm, setup, folder) for arm, setup in wanted]
    try:
        yield _those_up(servers)
    finally:
        for server in servers:
            server.stop()


def waves(planned: Sequence[Wave], folder: Path) -> Iterator[list[Server]]:
    """The servers of one wave after the other; a wave starts while the one before it works."""
    with contextlib.ExitStack() as all_servers, concurrent.futures.ThreadPoolExecutor(1) as ahead:

        def begin(wave: Wave) -> tuple[contextlib.ExitStack, list[Server]]:
            stack = all_servers.enter_context(contextlib.ExitStack())
            return stack, stack.enter_context(serving(wave, folder))

        upcoming = [ahead.submit(begin, wave) for wave in planned[:1]]
        for number, _ in enumerate(planned):
            stack, servers = upcoming.pop().result()
            upcoming = [ahead.submit(begin, wave) for wave in planned[number + 1 : number + 2]]
            print(f"wave {number + 1} of {len(planned)}: {len(servers)} servers", flush=True)
            with stack:
                yield servers


def _those_up(servers: list[Server]) -> list[Server]:
    with concurrent.futures.ThreadPoolExecutor(max(1, len(servers))) as pool:
        came = list(pool.map(Server.comes_up, servers))
    return [server for server, up in zip(servers, came, strict=True) if up]


def stop_in_time(deadline: float) -> None:
    """End this process in an orderly way, its servers with it, 10 s before `deadline` (time.time)."""

    def end(*_: object) -> None:
        sys.exit("stopped at the deadline")

    signal.signal(signal.SIGALRM, end)
    signal.signal(signal.SIGTERM, end)
    if deadline:
        signal.alarm(max(1, int(deadline - time.time()) - 10))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(arm: Arm, setup: Setup, folder: Path) -> Server:
    port = free_port()
    flags = [
        f"--port={port}",
        f"--nccl-port={free_port()}",
        f"--model-path={setup.target}",
        f"--tp-size={setup.tp}",
        f"--dtype={'float32' if setup.exact else 'bfloat16'}",
        "--attention-backend=triton",
        "--sampling-backend=pytorch",
        "--mem-fraction-static=0.7",
        "--max-total-tokens=65536",
        f"--max-running-requests={max(setup.batches)}",
        f"--page-size={setup.page}",
        "--chunked-prefill-size=1024",
        "--random-seed=1",
        "--skip-server-warmup",
        "--cuda-graph-backend-prefill=disabled",
        *(["--sleep-on-idle"] if setup.exact else []),  # many share the processor; nothing is timed
        *(
            ["--cuda-graph-bs-decode", *map(str, setup.batches)]
            if setup.graphs
            else ["--cuda-graph-backend-decode=disabled"]
        ),
    ]
    if setup.tp > 1:
        flags.append("--disable-custom-all-reduce")  # NCCL alone
    if arm.algorithm is not None:
        flags += [
            f"--speculative-algorithm={arm.algorithm}",
            f"--speculative-draft-model-path={setup.drafter}",
        ]
    log = folder / f"{arm.name}-{str(setup).replace('/', '-')}-{setup.target.parent.name}.log"
    site = plugin_site(folder / ("exact" if setup.exact else "stock"), exact=setup.exact)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    own = {
        "PYTHONPATH": path,
        "HF_HUB_OFFLINE": "1",
        **(EXACT if setup.exact else {}),
        **({} if setup.graphs else {"KDTREE_EAGER_VERIFY": "1"}),
        **dict(setup.environment),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "sglang.launch_server", *flags, *arm.flags, *setup.extra],
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(arm, setup, port, process, log)
