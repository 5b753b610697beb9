"""One SSH connection to one host: run, stream, upload, forward."""

from __future__ import annotations

import contextlib
import select
import shlex
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

import paramiko

from kdops.errors import KdopsError, UnreachableError
from kdops.host.forward import Forward
from kdops.host.hops import Hops
from kdops.host.settings import ALIVE_INTERVAL_S, resolve
from kdops.text import printable

if TYPE_CHECKING:
    from kdops.fleet import Host

_CHUNK = 1 << 15
_OPEN_S = 10.0
_ANSWER_S = 10.0  # a keep-alive waits behind what is still being sent
_ATOMIC_WRITE = """set -e
t=$(mktemp -- "$1.XXXXXX"); trap 'rm -f -- "$t"' EXIT
cat > "$t"; chmod -- "$2" "$t"
[ "$(stat -c %s -- "$t")" = "$3" ] || { echo "upload cut short" >&2; exit 1; }
sync -- "$t"; mv -fT -- "$t" "$1"; trap - EXIT"""


@dataclass(frozen=True)
class RunResult:
    """How a command ended on the host. `code` is its exit status, -1 if a signal ended it."""

    argv: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """stdout as text; bytes that are no UTF-8 are replaced."""
        return self.stdout.decode(errors="replace")


class HostConnection:
    """A lazy connection to `host`: opened by the first call, closed by `with` or close().

    Threads may share it: each call is a channel of its own, and the first one connects for all.

    timeout: seconds for each hop's connect and login (default: ConnectTimeout of ssh, else 5).
    Every method raises UnreachableError when the host is out of reach, its key is not trusted,
    or the link breaks.
    """

    def __init__(self, host: Host, timeout: float | None = None) -> None:
        self.host = host
        self._timeout = timeout
        self._hops: Hops | None = None
        self._opening = threading.Lock()
        become = host.variables.get("ansible_become", False)
        self._sudo = ("sudo", "-n", "--") if str(become).lower() in ("true", "yes", "1") else ()

    def __enter__(self) -> HostConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> paramiko.Transport:
        """Connect unless connected; return the transport."""
        with self._opening:
            hops = self._hops
            if hops is None or not hops.last.transport.is_active():
                self.close()
                hops = self._hops = Hops(self.host.name, resolve(self.host.ssh), self._timeout)
            return hops.last.transport

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        hops, self._hops = self._hops, None
        if hops:
            hops.close()

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, check: bool = False
    ) -> RunResult:
        """Run `argv` (quoted for the remote shell) and return how it ended.

        timeout: seconds for the whole command. Raises UnreachableError past it, when the link breaks or the
        host is silent to keep-alives; with `check`, KdopsError when the exit status is not 0.
        """
        end = time.monotonic() + timeout
        out, err = bytearray(), bytearray()
        with self._channel(argv, min(timeout, _OPEN_S)) as channel:
            rest = memoryview(stdin)
            while True:
                if rest and channel.send_ready():
                    with contextlib.suppress(
                        OSError
                    ):  # a command that reads no more says so by its exit status
                        rest = rest[channel.send(rest[:_CHUNK]) :]
                if not rest and not channel.eof_sent:
                    channel.shutdown_write()
                busy = _drain(channel, out, err)
                if channel.closed or (channel.eof_received and not busy and channel.exit_status_ready()):
                    _drain(channel, out, err)
                    break
                if time.monotonic() > end:
                    raise self._lost(
                        channel.get_transport(),
                        argv,
                        f"no end within {timeout:g} s",
                        "a command did not end in time",
                    )
                if not busy:
                    self._wait(channel, argv, 0.005 if rest else max(0.0, end - time.monotonic()))
            if not channel.exit_status_ready() or (channel.exit_status == -1 and not self._alive()):
                raise self._lost(channel.get_transport(), argv, "the link broke")
            result = RunResult(tuple(argv), channel.exit_status, bytes(out), bytes(err))
        if check and result.code:
            raise _failed(self.host.name, result)
        return result

    def stream(self, argv: Sequence[str], stdin: bytes = b"") -> Iterator[bytes]:
        """Yield stdout of `argv` as it arrives, in pieces of any size; stderr is dropped.

        stdin: at most a few kilobytes; it is sent before anything is read.

        Raises UnreachableError when the link breaks or the host is silent to keep-alives;
        ends when the command ends with status 0, else raises KdopsError.
        """
        with self._channel(argv, _OPEN_S) as channel:
            channel.sendall(stdin)
            channel.shutdown_write()
            err = bytearray()
            while True:
                out = bytearray()
                if _drain(channel, out, err):
                    del err[:-4000]
                    if out:
                        yield bytes(out)
                elif channel.closed or (channel.eof_received and channel.exit_status_ready()):
                    break
                else:
                    self._wait(channel, argv, ALIVE_INTERVAL_S)
            if not channel.exit_status_ready() or channel.exit_status == -1:
                raise self._lost(channel.get_transport(), argv, "the link broke")
            if channel.exit_status:
                raise _failed(self.host.name, RunResult(tuple(argv), channel.exit_status, b"", bytes(err)))

    def upload(self, content: bytes, path: str, mode: int = 0o644, *, timeout: float = 60.0) -> None:
        """Write `content` to `path` on the host, whole or not at all (size check, sync, rename).

        Raises KdopsError when the host refuses (no such folder, disk full).
        """
        argv = ["sh", "-c", _ATOMIC_WRITE, "sh", path, f"{mode:o}", str(len(content))]
        result = self.run(argv, stdin=content, timeout=timeout)
        if result.code:
            raise _failed(self.host.name, RunResult(("write", path), result.code, b"", result.stderr))

    @contextlib.contextmanager
    def forward(self, port: int, address: str = "127.0.0.1") -> Iterator[int]:
        """Forward a free loopback port here to `address`:`port` as the host sees it; yield that port."""
        with Forward(self.open(), (address, port)) as local:
            yield local

    @contextlib.contextmanager
    def _channel(self, argv: Sequence[str], timeout: float) -> Iterator[paramiko.Channel]:
        transport = self.open()
        try:
            channel = transport.open_session(timeout=timeout)
            channel.exec_command(shlex.join([*self._sudo, *argv]))
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost(transport, argv, str(error) or type(error).__name__) from error
        try:
            yield channel
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._lost(transport, argv, str(error) or type(error).__name__) from error
        finally:
            channel.close()

    def _wait(self, channel: paramiko.Channel, argv: Sequence[str], seconds: float) -> None:
        """Wait until the channel has something, at most `seconds`; a host silent for ALIVE_INTERVAL_S must
        answer a keep-alive.
        """
        if select.select([channel], [], [], min(seconds, ALIVE_INTERVAL_S))[0] or seconds < ALIVE_INTERVAL_S:
            return
        if not self._alive():
            raise self._lost(channel.get_transport(), argv, "the host answers no keep-alive")

    def _alive(self) -> bool:
        """True if the host answers a request now. paramiko would wait for ever, so a thread waits."""
        transport = self._hops.last.transport if self._hops else None
        if transport is None or not transport.is_active():
            return False
        asked = threading.Thread(
            target=transport.global_request, args=("keepalive@openssh.com", None, True), daemon=True
        )
        asked.start()
        asked.join(_ANSWER_S)
        return not asked.is_alive() and transport.is_active()

    def _lost(
        self, transport: paramiko.Transport, argv: Sequence[str], why: str, what: str = "connection lost"
    ) -> UnreachableError:
        with self._opening:
            # Another thread may have connected again since: that connection is not the broken one.
            if self._hops and self._hops.last.transport is transport:
                self.close()
        return UnreachableError(
            f"{self.host.name}: {what}",
            cause=why,
            remedy="check the host and the network, then try again",
            evidence=(f"while running: {shlex.join(argv)[:160]}",),
        )


def _drain(channel: Any, out: bytearray, err: bytearray) -> bool:
    busy = False
    while channel.recv_ready():
        out += channel.recv(1 << 20)
        busy = True
    while channel.recv_stderr_ready():
        err += channel.recv_stderr(1 << 20)
        busy = True
    return busy


def _failed(name: str, result: RunResult) -> KdopsError:
    said = [printable(line) for line in result.stderr.decode(errors="replace").splitlines()[-10:]]
    return KdopsError(
        f"{name}: a command failed on the host",
        cause=said[-1] if said else f"exit status {result.code}",
        remedy=f"run it on the host: {shlex.join(result.argv)[:300]}",
        evidence=tuple(said),
    )
