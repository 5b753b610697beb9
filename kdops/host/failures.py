"""From what went wrong below (socket, ssh) to what a person can act on."""

from __future__ import annotations

import errno
import os
import shlex
import socket
from typing import NamedTuple

import paramiko

from kdops.errors import UnreachableError
from kdops.host.known_hosts import HostKeyRefusedError
from kdops.host.settings import SshSettings

_IS_IT_UP = "check that the host is up and the network to it"


class HostKeyError(UnreachableError):
    """The host's key is unknown, changed or revoked: trying again cannot help."""


class _Said(NamedTuple):
    title: str
    cause: str
    remedy: str
    evidence: tuple[str, ...] = ()


def unreachable(
    name: str, hop: SshSettings, error: BaseException, *, jump: bool = False, proxy_said: tuple[str, ...] = ()
) -> UnreachableError:
    """Return the UnreachableError for `error`, met while connecting to `hop` on the way to host `name`.

    jump: `hop` is a jump host. proxy_said: last stderr lines of its ProxyCommand.
    """
    said = _explain(hop, error)
    title = f"jump host {hop.hostname} failed: {said.title}" if jump else said.title
    kind = HostKeyError if isinstance(error, HostKeyRefusedError) else UnreachableError
    return kind(f"{name}: {title}", cause=said.cause, remedy=said.remedy, evidence=said.evidence + proxy_said)


def _explain(hop: SshSettings, error: BaseException) -> _Said:
    by_hand = f"ssh -v {shlex.quote(hop.address)}"
    if isinstance(error, HostKeyRefusedError):
        return _host_key(hop, error)
    if isinstance(error, socket.gaierror):
        return _Said(
            "host name not resolved",
            f"{hop.hostname}: {error.strerror}",
            "correct ansible_host in the inventory, or HostName in your ssh configuration",
        )
    if isinstance(error, paramiko.PasswordRequiredException):
        return _Said(
            "authentication failed",
            f"the key for {hop.label} is encrypted and no agent holds it",
            "load it into an agent: ssh-add " + " ".join(map(shlex.quote, hop.identity_files[:1])),
        )
    if isinstance(error, paramiko.AuthenticationException) or "authentication methods" in str(error):
        return _Said(
            "authentication failed",
            f"{hop.label} accepts none of the keys offered",
            f"check user and key: {by_hand}",
            tuple(f"offered: {file}" for file in hop.identity_files if os.access(file, os.R_OK)),
        )
    if hop.proxy_command and not isinstance(error, TimeoutError):
        cause = f"no SSH server answered through it: {error}"
        return _Said("ProxyCommand failed", cause, f"run it by hand: {hop.proxy_command}")
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        first = next(iter(error.errors.values()), error)
        return _explain(hop, first)
    if isinstance(error, paramiko.ChannelException):
        return _Said(
            f"{hop.label} not reached from its jump host",
            f"the jump host says: {error.text}",
            "check that the host is up and that the jump host may reach it",
        )
    if isinstance(error, ConnectionRefusedError):
        return _Said(
            "connection refused",
            f"nothing listens at {hop.hostname} port {hop.port}",
            "check that sshd runs there, and the port (ansible_port)",
        )
    if isinstance(error, TimeoutError):
        return _Said("timed out", f"no answer from {hop.hostname} port {hop.port}", f"{_IS_IT_UP}: {by_hand}")
    if getattr(error, "errno", None) in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return _Said("no route", f"{hop.hostname} cannot be reached from here", f"{_IS_IT_UP}: {by_hand}")
    return _Said(
        "connection failed",
        f"{hop.label}: {error or type(error).__name__}",
        f"try by hand: {by_hand}",
    )


def _host_key(hop: SshSettings, error: HostKeyRefusedError) -> _Said:
    name = hop.key_names[0]
    file = hop.known_hosts_files[0] if hop.known_hosts_files else "~/.ssh/known_hosts"
    if error.revoked:
        return _Said(
            "host key revoked",
            f"{name} shows a key marked @revoked",
            "do not connect; ask whoever runs the host which key is right",
            (f"shown: {error.got}",),
        )
    if error.expected:
        return _Said(
            "host key changed",
            f"{name} shows another key than the known one: reinstalled, or someone is in between",
            f"compare on the host's console (ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub); if it is right:"
            f" ssh-keygen -R {shlex.quote(name)} -f {shlex.quote(file)}, then connect once with ssh",
            (
                *(f"known: {key} ({at})" for key, at in zip(error.expected, error.where, strict=False)),
                f"shown: {error.got}",
            ),
        )
    scan = f"ssh-keyscan -p {hop.port} {shlex.quote(hop.hostname)}"
    return _Said(
        "host key unknown",
        f"no known_hosts file of ssh has a key for {name}",
        f"compare the fingerprint with the host's own, then trust it: {scan} >> {shlex.quote(file)}"
        f" (or connect once: ssh {shlex.quote(hop.address)})",
        (f"shown: {error.got}",),
    )
