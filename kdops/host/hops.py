"""Open one authenticated SSH connection, jump hosts first. Every failure is an UnreachableError."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import tempfile
import time
from typing import Any

import fabric
import paramiko

from kdops.host.failures import unreachable
from kdops.host.known_hosts import HostKeyRefusedError, PreferKnown, RefuseUntrusted, look_up
from kdops.host.settings import ALIVE_COUNT_MAX, ALIVE_INTERVAL_S, CONNECT_TIMEOUT_S, SshSettings

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its traces would reach stderr
_FAILURES = (OSError, paramiko.SSHException, HostKeyRefusedError, EOFError, ValueError)


class Hops:
    """The open connections of one host, jump host by jump host; the last one is the host itself."""

    def __init__(self, name: str, settings: SshSettings, timeout: float | None = None) -> None:
        self._name = name
        self._timeout = timeout
        self._proxy_stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._proxies: list[subprocess.Popen[bytes]] = []
        self._open: list[fabric.Connection] = []
        try:
            self.last = self._connect(settings, is_jump=False)
        except BaseException:
            self.close()
            raise

    def _connect(self, hop: SshSettings, *, is_jump: bool) -> fabric.Connection:
        via = self._connect(hop.jump, is_jump=True) if hop.jump else None
        timeout = self._timeout or hop.connect_timeout or CONNECT_TIMEOUT_S
        started = time.monotonic()
        try:
            known = look_up(hop)
            sock = self._socket(hop, via, timeout)
            connection = fabric.Connection(
                hop.hostname,
                user=hop.user,
                port=hop.port,
                gateway=False,
                connect_timeout=timeout,
                config=fabric.Config(
                    lazy=True,
                    ssh_config=paramiko.SSHConfig(),
                    overrides={"run": {"in_stream": False, "hide": True}},
                ),
                connect_kwargs={
                    "sock": sock,
                    "key_filename": [f for f in hop.identity_files if os.access(f, os.R_OK)],
                    "look_for_keys": False,
                    "allow_agent": hop.agent and not hop.identities_only,
                    "banner_timeout": timeout,
                    "auth_timeout": timeout,
                    "channel_timeout": timeout,
                    "transport_factory": PreferKnown(known),
                },
            )
            self._open.append(connection)
            connection.client.set_missing_host_key_policy(RefuseUntrusted(known))
            connection.open()
            connection.transport.set_keepalive(ALIVE_INTERVAL_S)
        except _FAILURES as failure:
            late = isinstance(failure, paramiko.SSHException) and time.monotonic() - started >= timeout
            error = TimeoutError() if late else failure  # paramiko calls a silent server a bad banner
            raise unreachable(
                self._name, hop, error, jump=is_jump, proxy_said=self._proxy_said(hop)
            ) from failure
        return connection

    def _socket(self, hop: SshSettings, via: fabric.Connection | None, timeout: float) -> Any:
        if hop.proxy_command:
            # As ssh does: the command's stdin and stdout are one socket, and a shell interprets it.
            # (paramiko's own ProxyCommand uses no shell and spins for ever once the command has died.)
            ours, theirs = socket.socketpair()
            with theirs:
                self._proxies.append(
                    subprocess.Popen(
                        ["/bin/sh", "-c", f"exec {hop.proxy_command}"],
                        stdin=theirs.fileno(),
                        stdout=theirs.fileno(),
                        stderr=self._proxy_stderr,
                        start_new_session=True,
                    )
                )
            return ours
        if via:
            return via.transport.open_channel(
                "direct-tcpip", (hop.hostname, hop.port), ("", 0), timeout=timeout
            )
        sock = socket.create_connection((hop.hostname, hop.port), timeout=timeout)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # paramiko's keep-alive asks but never counts answers: let the kernel give up on unanswered data.
        limit_ms = 1000 * ALIVE_INTERVAL_S * (ALIVE_COUNT_MAX + 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
        return sock

    def _proxy_said(self, hop: SshSettings) -> tuple[str, ...]:
        if not hop.proxy_command:
            return ()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._proxies[-1].wait(0.2)
        self._proxy_stderr.seek(0)
        return tuple(self._proxy_stderr.read(4000).decode(errors="replace").splitlines()[-5:])

    def close(self) -> None:
        """Close all hops, the host first, and end the proxy commands."""
        for connection in reversed(self._open):
            with contextlib.suppress(*_FAILURES):
                connection.client.close()
        for process in self._proxies:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
        self._proxy_stderr.close()
        self._open.clear()
        self._proxies.clear()
