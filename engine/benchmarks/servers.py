"""Starts SGLang servers of one model pair on this host, in waves, and asks them for tokens."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
PAIR = CHECKOUT / "models" / "tiny-pair"
TEST_PLUGINS = CHECKOUT / "engine" / "tests" / "replay"
READY_SECONDS, ANSWER_SECONDS = 240.0, 180
# fp32 means fp32: neither cuBLAS nor Triton may round products to TF32.
EXACT = {
    "NVIDIA_TF32_OVERRIDE": "0",
    "TRITON_F32_DEFAULT": "ieee",
    "SGLANG_FORCE_FUSED_OP_BACKEND": "torch",
}
Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Arm:
    """name; algorithm: None for plain decoding; flags: its own, by name."""

    name: str
    algorithm: str | None = None
    flags: Pairs = ()


def ddtree(budget: int, topk: int = 4) -> Arm:
    name = f"ddtree-{budget}" if topk > 1 else "ddtree-chain"
    return Arm(name, "DDTREE", (("ddtree-budget", budget), ("ddtree-topk-cap", topk)))


AUTOREGRESSIVE, LINEAR, CHAIN = Arm("autoregressive"), Arm("dflash", "DFLASH"), ddtree(8, topk=1)
AUTO = Arm("ddtree-auto", "DDTREE", (("ddtree-budget", "auto"),))
ARMS = (AUTOREGRESSIVE, LINEAR, CHAIN, ddtree(8), ddtree(16), ddtree(32), AUTO)


def arms(names: Sequence[str]) -> list[Arm]:
    """The arms with these names, in that order. Raises KeyError for another name."""
    known = {arm.name: arm for arm in ARMS}
    return [known[name] for name in names]


@dataclass(frozen=True)
class Setup:
    """graphs: whether decoding is captured; page: tokens of a KV page; tp: ranks. exact: fp32 without TF32,
    else bf16 with SGLang's own kernels. batches: captured batch sizes; requests: how many may run at once,
    the largest of these unless given, which is for more of them than the graphs take.

    target, drafter: model folders; extra: further flags, by name; environment: further variables; plugins:
    modules of TEST_PLUGINS.
    """

    graphs: bool = True
    page: int = 1
    exact: bool = True
    batches: tuple[int, ...] = (1, 8, 32)
    requests: int | None = None
    tp: int = 1
    device: str = "cuda"
    target: Path = PAIR / "target"
    drafter: Path = PAIR / "drafter"
    extra: Pairs = ()
    environment: tuple[tuple[str, str], ...] = ()
    plugins: tuple[str, ...] = ()

    def __str__(self) -> str:
        kind = "eager" if not self.graphs else "partly" if self.requests else "graphs"
        mode = "cpu" if self.device == "cpu" else kind
        kind = f"{mode}/page{self.page}/{'fp32' if self.exact else 'bf16'}"
        return kind if self.tp == 1 else f"{kind}/tp{self.tp}"


Wave = Sequence[tuple[Arm, Setup]]


def flags(arm: Arm, setup: Setup) -> dict[str, Any]:
    """SGLang's flags by name, as in a launch file; True is a switch."""
    found: dict[str, Any] = {
        "model-path": str(setup.target),
        "tp-size": setup.tp,
        "dtype": "float32" if setup.exact else "bfloat16",
        "sampling-backend": "pytorch",
        "max-running-requests": setup.requests or max(setup.batches),
        "page-size": setup.page,
        "chunked-prefill-size": 1024,
        "random-seed": 1,
        "skip-server-warmup": True,
    }
    if setup.device == "cpu":
        found |= {"device": "cpu", "attention-backend": "torch_native", "sleep-on-idle": True}
        found |= {"mem-fraction-static": 0.1, "max-total-tokens": 16384}
    else:
        found |= {"attention-backend": "triton", "cuda-graph-backend-prefill": "disabled"}
        found |= {"mem-fraction-static": 0.95, "max-total-tokens": 65536}  # several share the card
        if setup.exact:
            found["sleep-on-idle"] = True  # many share the processor; nothing is timed
        if setup.graphs:
            found["cuda-graph-bs-decode"] = list(setup.batches)
        else:
            found["cuda-graph-backend-decode"] = "disabled"
        if setup.tp > 1:
            found["disable-custom-all-reduce"] = True  # NCCL alone
    if arm.algorithm is not None:
        found |= {
            "speculative-algorithm": arm.algorithm,
            "speculative-draft-model-path": str(setup.drafter),
        }
    return found | dict(arm.flags) | dict(setup.extra)


def variables(setup: Setup) -> dict[str, str]:
    """The environment's part of a set-up."""
    found = {"HF_HUB_OFFLINE": "1"}
    if setup.device == "cpu":
        cores = "|".join(str(rank) for rank in range(setup.tp))
        found |= {"SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1", "SGLANG_CPU_OMP_THREADS_BIND": cores}
        found["TORCHDYNAMO_DISABLE"] = "1"  # two ranks would compile, and a host may have no compiler
    elif setup.exact:
        found |= EXACT
    return found | dict(setup.environment)


def words(named: Mapping[str, Any]) -> list[str]:
    """The flags as command-line words."""
    found: list[str] = []
    for name, value in named.items():
        found.append(f"--{name}")
        if value is not True:
            found += map(str, value if isinstance(value, list) else [value])
    return found


def describe(arm: Arm, setup: Setup) -> str:
    """One line that starts this server by hand, but for its ports and plugins."""
    set_ = [f"{name}={shlex.quote(value)}" for name, value in variables(setup).items()]
    return " ".join([*set_, "python -m sglang.launch_server", shlex.join(words(flags(arm, setup)))])


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
        asked = {"input_ids": list(ids), "sampling_params": parameters, **(body or {})}
        return json.loads(self.request("generate", asked, seconds=ANSWER_SECONDS))

    def request(self, path: str, body: dict[str, Any] | None = None, *, seconds: float = 60) -> bytes:
        """The answer's body; GET without one. Raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        url, headers = f"http://127.0.0.1:{self.port}/{path}", {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=seconds) as answer:
            found: bytes = answer.read()
            return found

    def ready(self) -> bool:
        with contextlib.suppress(OSError):
            self.request("health", seconds=5)
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


def install(folder: Path, name: str, module: str, source: Path) -> None:
    """A distribution in a folder for PYTHONPATH through which SGLang finds a plugin of this checkout."""
    info = folder / f"{name}-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{name} = {module}:register\n")
    with contextlib.suppress(FileExistsError):
        (folder / source.name).symlink_to(source)


def plugin_site(setup: Setup, folder: Path) -> Path:
    """The folder for PYTHONPATH of this set-up's servers, with the plugins they need."""
    engine, exact = CHECKOUT / "engine", setup.exact and setup.device != "cpu"
    own = {"fp32_plugin": engine / "benchmarks"} if exact else {}
    own |= dict.fromkeys(setup.plugins, TEST_PLUGINS)
    site = folder / "-".join(["site", *own])
    install(site, "kdtree_engine", "kdtree_engine.sglang", engine / "kdtree_engine")
    for name, place in own.items():
        install(site, name, name, place / f"{name}.py")
    return site


def start(arm: Arm, setup: Setup, folder: Path, command: Sequence[str], port: int, log: Path) -> Server:
    """Run `python COMMAND` with the plugin and the set-up's environment."""
    site = plugin_site(setup, folder)
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": path, **variables(setup)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(arm, setup, port, process, log)


def _start(arm: Arm, setup: Setup, folder: Path) -> Server:
    port = free_port()
    asked = words(flags(arm, setup) | {"port": port, "nccl-port": free_port()})
    log = folder / f"{arm.name}-{str(setup).replace('/', '-')}-{setup.target.parent.name}.log"
    return start(arm, setup, folder, ["-m", "sglang.launch_server", *asked], port, log)


@contextlib.contextmanager
def serving(wanted: Wave, folder: Path, after: Path | None = None) -> Iterator[list[Server]]:
    """The servers, all at once; those that do not come up are left out. Killed at the end.

    after: they stand still until this file exists, which another script's turn on the card ends with.
    """
    servers = [_start(arm, setup, folder) for arm, setup in wanted]
    try:
        up = _those_up(servers)
        if after is not None:
            _stand_still(up, after)
        yield up
    finally:
        for server in servers:
            server.stop()


def waves(planned: Sequence[Wave], folder: Path, after: Path | None) -> Iterator[list[Server]]:
    """The servers of one wave after the other; a wave starts while the one before it works."""
    with contextlib.ExitStack() as all_servers, concurrent.futures.ThreadPoolExecutor(1) as ahead:

        def begin(wave: Wave) -> tuple[contextlib.ExitStack, list[Server]]:
            stack = all_servers.enter_context(contextlib.ExitStack())
            return stack, stack.enter_context(serving(wave, folder, after))

        upcoming = [ahead.submit(begin, wave) for wave in planned[:1]]
        for number, _ in enumerate(planned):
            stack, servers = upcoming.pop().result()
            upcoming = [ahead.submit(begin, wave) for wave in planned[number + 1 : number + 2]]
            print(f"wave {number + 1} of {len(planned)}: {len(servers)} servers", flush=True)
            with stack:
                yield servers


def _stand_still(servers: Sequence[Server], until: Path) -> None:
    for server in servers:
        server.pause()
    while not until.exists():
        time.sleep(0.2)
    for server in servers:
        server.resume()


@contextlib.contextmanager
def alone(server: Server, servers: Sequence[Server]) -> Iterator[None]:
    """All others stand still."""
    others = [other for other in servers if other is not server]
    for other in others:
        other.pause()
    try:
        yield
    finally:
        for other in others:
            other.resume()


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
    signal.alarm(max(1, int(deadline - time.time()) - 10))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
