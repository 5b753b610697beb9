"""A real SSH server on a loopback port, whose commands run here: for tests of links, not of systemd."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from kdops.fleet import Host, SshTarget
from kdops.fleet.gpus import BY_ID


@dataclass
class SshServer:
    """connections: how many logins there were. hang_up() cuts them all; `refuse` lets nobody in."""

    listening: socket.socket
    key: paramiko.PKey
    environment: Mapping[str, str]
    connections: int = 0
    refuse: bool = False
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _transports: list[paramiko.Transport] = field(default_factory=list)

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            if self.refuse:
                client.close()
                continue
            transport = paramiko.Transport(client)
            transport.add_server_key(self.key)
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(server=_Server(self))
                self._transports.append(transport)

    def hang_up(self) -> None:
        for transport in self._transports:
            transport.close()
        self._transports.clear()
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()


class _Server(paramiko.ServerInterface):
    def __init__(self, server: SshServer) -> None:
        self._server = server

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._server.connections += 1
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: bytes) -> None:
        process = subprocess.Popen(
            ["/bin/sh", "-c", b"exec " + command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**os.environ, **self._server.environment},
        )  # fmt: skip
        self._server.processes.append(process)
        threading.Thread(target=self._feed, args=(channel, process), daemon=True).start()
        with contextlib.suppress(OSError):
            while piece := process.stdout.read1(1 << 15):
                channel.sendall(piece)
            channel.send_exit_status(max(process.wait(), 0))
        process.stdout.close()
        channel.close()

    def _feed(self, channel: paramiko.Channel, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError, BrokenPipeError):
            while piece := channel.recv(1 << 15):
                process.stdin.write(piece)
        with contextlib.suppress(OSError):
            process.stdin.close()


@contextlib.contextmanager
def ssh_host(folder: Path, name: str, environment: Mapping[str, str]) -> Iterator[tuple[Host, SshServer]]:
    """Serve on a loopback port; yield the host as an inventory would name it, its key known."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    key = paramiko.ECDSAKey.generate()
    identity = folder / "identity"
    paramiko.ECDSAKey.generate().write_private_key_file(str(identity))
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {key.get_name()} {key.get_base64()}\n")
    config = folder / "ssh_config"
    config.write_text(
        f"Host *\n  IdentityFile {identity}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n"
        "  GlobalKnownHostsFile /dev/null\n"
    )
    target = SshTarget("127.0.0.1", "root", port, None, ("-F", str(config)))
    server = SshServer(listening, key, environment)
    threading.Thread(target=server.serve, daemon=True).start()
    try:
        yield Host(name, (), folder / "inventory.yml", target, BY_ID["cpu"], 0, name, {}, {}), server
    finally:
        server.hang_up()
        listening.close()
