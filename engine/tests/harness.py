"""Starts real engines for tests: SGLang on the CPU under the launcher, and hears what it tells systemd."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kdops.deploy.engine import site_files

CHECKOUT = Path(__file__).parents[2]
REPLAY = Path(__file__).parent / "replay"
READY_SECONDS = 240

# Runs a command inside the lab's root file system, on this machine's network, temporary folder, checkout and
# test environment, all in a mount namespace of its own, so that nothing stays behind when the command ends.
_ENTER = """
set -e
root=$1 checkout=$2 venv=$3 temporary=$4; shift 4
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir="$root",upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
for folder in /proc /sys /dev "$temporary" "$checkout" "$venv"; do
  mkdir -p "/mnt/root$folder"
  mount --rbind "$folder" "/mnt/root$folder"
done
exec chroot /mnt/root /usr/bin/env --chdir="$checkout" "$@"
"""


@dataclass(frozen=True)
class EngineHome:
    """python: the command that runs SGLang's Python; site: folder with the engine, for PYTHONPATH."""

    python: tuple[str, ...]
    site: Path

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH")]))
        own = {
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            # One thread: on a busy machine the barriers between two cost far more than they gain on this
            # model.
            "OMP_NUM_THREADS": "1",
        }
        return {**os.environ, **own, **(extra or {})}


def make_home(site: Path) -> EngineHome:
    """KDTREE_PYTHON names a Python with SGLang and kdtree-cpu-support; without it, the lab's is used (root,
    Debian).
    """
    for path, content in site_files().items():
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    given = os.environ.get("KDTREE_PYTHON")
    if given:
        return EngineHome((given,), site)
    from kdops.lab import names, rootfs
    from kdops.locks import lock_digest, lock_file

    root = rootfs.ensure(names.current(), lambda text: print(text, file=sys.stderr))
    python = f"/opt/kdops/venvs/{lock_digest(lock_file('cpu'))}/bin/python"
    enter = ("unshare", "--mount", "--propagation", "private", "sh", "-c", _ENTER, "sh")
    bound = (str(CHECKOUT), sys.prefix, tempfile.gettempdir())
    return EngineHome((*enter, str(root), *bound, python), site)


def plugged(home: EngineHome, folder: Path, plugin: str) -> EngineHome:
    """The same engine with an SGLang plugin of replay/ installed beside it."""
    info = folder / f"{plugin}-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {plugin.replace('_', '-')}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{plugin} = {plugin}:register\n")
    (folder / f"{plugin}.py").write_text((REPLAY / f"{plugin}.py").read_text())
    for entry in home.site.iterdir():
        (folder / entry.name).symlink_to(entry)
    return replace(home, site=folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tiny_pair(models: Path, **changes: Any) -> dict[str, Any]:
    """A launch file for the tiny target in fp32; keyword arguments are flags with underscores, None removes
    one.
    """
    flags: dict[str, Any] = {
        "model_path": str(models / "target"),
        "dtype": "float32",
        "device": "cpu",
        "attention_backend": "torch_native",
        "mem_fraction_static": 0.1,
        "max_total_tokens": 16384,
        "max_running_requests": 8,
        **changes,
    }
    return {name.replace("_", "-"): value for name, value in flags.items() if value is not None}


def speculative(models: Path, algorithm: str, **changes: Any) -> dict[str, Any]:
    drafter = str(models / "drafter")
    return tiny_pair(models, speculative_algorithm=algorithm, speculative_draft_model_path=drafter, **changes)


@dataclass
class Notification:
    """One datagram to NOTIFY_SOCKET: when (time.monotonic) and its assignments."""

    at: float
    values: dict[str, str]


@dataclass
class Engine:
    """A running launcher. `said` grows while it runs; `log` is its stdout and stderr together."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    key: str | None
    said: list[Notification] = field(default_factory=list)
    _heard: threading.Condition = field(default_factory=threading.Condition)

    def await_said(self, wanted: Callable[[Notification], bool], what: str, seconds: float) -> Notification:
        """The first notification that fits, also among those heard; none fails the test."""
        deadline = time.monotonic() + seconds
        seen = 0
        with self._heard:
            while True:
                for notification in self.said[seen:]:
                    if wanted(notification):
                        return notification
                seen = len(self.said)
                ended = self.process.poll()
                if ended is not None or time.monotonic() >= deadline:
                    pytest.fail(f"{what}: not said within {seconds} s (exit {ended})\n{self.tail()}")
                self._heard.wait(0.5)

    def await_ready(self, seconds: float = READY_SECONDS) -> None:
        self.await_said(lambda heard: "READY" in heard.values, "READY=1", seconds)

    def await_status(self, pattern: str, seconds: float) -> Notification:
        """The first STATUS that matches the regular expression."""
        return self.await_said(
            lambda heard: re.search(pattern, heard.values.get("STATUS", "")) is not None,
            f"STATUS {pattern}",
            seconds,
        )

    def await_exit(self, seconds: float) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still running after {seconds} s\n{self.tail()}")

    def children(self, name: str) -> list[int]:
        """Pids below the launcher whose process title contains `name` (sglang::scheduler,
        sglang::detokenizer).
        """
        found = subprocess.run(
            ["pgrep", "--parent", str(self.process.pid), "--full", name], capture_output=True, text=True
        )
        return [int(pid) for pid in found.stdout.split()]

    def request(
        self, path: str, body: Any = None, *, timeout: float = 120, key: str | None = ""
    ) -> tuple[int, str]:
        """Status and text of an HTTP request; `key` replaces the engine's own."""
        headers = {"content-type": "application/json"}
        used = self.key if key == "" else key
        if used:
            headers["authorization"] = f"Bearer {used}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def generate(
        self, prompt: str | list[int], tokens: int, *, timeout: float = 300, **sampling: Any
    ) -> dict[str, Any]:
        """One generation of exactly `tokens` tokens unless the sampling parameters say otherwise; greedy by
        default.
        """
        parameters = {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True, **sampling}
        name = "text" if isinstance(prompt, str) else "input_ids"
        status, text = self.request(
            "/generate", {name: prompt, "sampling_params": parameters}, timeout=timeout
        )
        assert status == 200, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@contextlib.contextmanager
def start(
    home: EngineHome,
    folder: Path,
    flags: Mapping[str, Any],
    *,
    key: str | None = None,
    counted: bool = True,
    **environment: str,
) -> Iterator[Engine]:
    """Start the launcher with these flags; killed with its children at the end.

    counted: add a line to the file KDOPS_ENGINE_STARTS; False for starts that are refused before anything
    loads."""
    starts = os.environ.get("KDOPS_ENGINE_STARTS")
    if starts and counted:
        with Path(starts).open("a") as file:
            print(os.environ.get("PYTEST_CURRENT_TEST", "?"), file=file)
    port = free_port()
    config = folder / "launch.yaml"
    config.write_text(json.dumps({**flags, "port": port}))  # JSON is YAML
    if key is not None:
        (folder / "credentials").mkdir()
        (folder / "credentials" / "api_key").write_text(key + "\n")
        environment["CREDENTIALS_DIRECTORY"] = str(folder / "credentials")
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"{short}/notify")
        environment |= {"NOTIFY_SOCKET": f"{short}/notify", "RUNTIME_DIRECTORY": short}
        log = folder / "engine.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*home.python, "-m", "kdtree_engine.serve", "--config", str(config)],
                env=home.environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        engine = Engine(process, port, log, key)
        hearing = threading.Thread(target=_listen, args=(listener, engine), daemon=True)
        hearing.start()
        try:
            yield engine
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            listener.shutdown(socket.SHUT_RDWR)
            hearing.join()


def _listen(listener: socket.socket, engine: Engine) -> None:
    while True:
        data = listener.recv(65536)
        if not data:
            return
        values = dict(line.split("=", 1) for line in data.decode().splitlines())
        with engine._heard:
            engine.said.append(Notification(time.monotonic(), values))
            engine._heard.notify_all()
