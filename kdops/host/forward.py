"""A loopback port here, forwarded through SSH to a port of the host."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from types import TracebackType

import paramiko


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, transport: paramiko.Transport, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.transport = transport
        self.target = target


class _Relay(socketserver.BaseRequestHandler):
    server: _Server

    def handle(self) -> None:
        here: socket.socket = self.request
        here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            there = self.server.transport.open_channel(
                "direct-tcpip", self.server.target, self.client_address, timeout=10
            )
        except (paramiko.SSHException, OSError, EOFError):
            return  # closing the local side is what a refused port looks like
        with contextlib.closing(there), contextlib.suppress(OSError):
            while True:
                ready, _, _ = select.select([here, there], [], [])
                if here in ready:
                    data = here.recv(1 << 15)
                    if not data:
                        return
                    there.sendall(data)
                if there in ready:
                    data = there.recv(1 << 15)
                    if not data:
                        return
                    here.sendall(data)


class Forward:
    """Context manager: listens on a free port of 127.0.0.1 and yields it."""

    def __init__(self, transport: paramiko.Transport, target: tuple[str, int]) -> None:
        self._server = _Server(transport, target)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> int:
        self._thread.start()
        return int(self._server.server_address[1])

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
