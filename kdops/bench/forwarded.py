"""The load client here, its requests through an OpenSSH forward: latencies then hold the round trip."""

from __future__ import annotations

import http.client
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kdops.bench.client import job, parse, zipapp
from kdops.bench.workloads.suite import Stage
from kdops.errors import UnreachableError
from kdops.fleet import Host
from kdops.host.settings import target_args

_OPEN_S = 20.0
_OPTIONS = (
    "BatchMode=yes",
    "RemoteCommand=none",
    "ExitOnForwardFailure=yes",
    "StrictHostKeyChecking=yes",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
)
# Tells dashboards that kdops measures there: a process that names a load client's folder (`measuring` of
# kdops.host.on_host). It ends, and removes the folder, with this end of the link.
_MARK = (
    "d=$(mktemp -d -t kdops-load.XXXXXXXX) && "
    """exec python3 -c 'import os, sys; sys.stdin.read(); os.rmdir(sys.argv[1])' "$d" """
)


@contextmanager
def forward(host: Host, address: str, port: int) -> Iterator[int]:
    """Yield a port of 127.0.0.1 that `ssh -L` carries to `address`:`port` as the host sees it; dashboards
    pause meanwhile.

    Raises UnreachableError when ssh ends or the port does not open in 20 s.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        local = int(free.getsockname()[1])
    there = f"[{address}]" if ":" in address else address
    options = [word for option in _OPTIONS for word in ("-o", option)]
    command = ["ssh", "-T", *options, *target_args(host.ssh), "-L", f"127.0.0.1:{local}:{there}:{port}"]
    process = subprocess.Popen(
        [*command, "--", host.ssh.address, shlex.join(["sh", "-c", _MARK])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait(process, local, host.name)
        yield local
    finally:
        process.terminate()
        process.communicate()


def _wait(process: subprocess.Popen[str], port: int, name: str) -> None:
    deadline = time.monotonic() + _OPEN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    said = (process.stderr.read() if process.poll() is not None and process.stderr else "").strip()
    raise UnreachableError(
        f"{name}: the OpenSSH forward did not open",
        cause=said.splitlines()[-1] if said else f"no answer in {_OPEN_S:.0f} s",
        remedy="try `ssh` to that host by hand, or measure with --client host",
    )


def round_trip(port: int) -> float:
    """Return the least seconds of five empty requests over one connection. Raises UnreachableError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    took = []
    try:
        for _ in range(5):
            began = time.perf_counter()
            connection.request("GET", "/ping")
            connection.getresponse().read()
            took.append(time.perf_counter() - began)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(
            "the engine does not answer through the forward",
            cause=str(error) or type(error).__name__,
            remedy="see kdops status, or measure with --client host",
        ) from error
    finally:
        connection.close()
    return min(took)


def run(host: Host, port: int, key: str | None, stages: tuple[Stage, ...]) -> Iterator[Mapping[str, Any]]:
    """Run stages against the forwarded `port` with the client on this machine; yield its documents.

    Raises KdopsError when the client or the engine gave up.
    """
    with tempfile.TemporaryDirectory(prefix="kdops-load.") as name:
        folder = Path(name)
        key_file = folder / "api_key"
        key_file.touch(0o600)
        key_file.write_text(key or "")
        (folder / "load.pyz").write_bytes(zipapp())
        (folder / "job.json").write_bytes(job(port, "", stages, key_file=str(key_file), gpus=False))
        command = [sys.executable, "-IB", str(folder / "load.pyz"), str(folder / "job.json")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            yield from parse(process.stdout, host.name)
        finally:
            process.terminate()
            process.communicate()
