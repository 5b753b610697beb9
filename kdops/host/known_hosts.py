"""Host keys a user already trusts, looked up by OpenSSH's ssh-keygen, and the policy that refuses all others.

paramiko's own reader knows no patterns, no @revoked and only one key of a type per host.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

import paramiko

from kdops.host.settings import SshSettings


@dataclass(frozen=True)
class KnownKeys:
    """Keys known for one host: (type, key blob) pairs; `where` names the file:line of each trusted key."""

    trusted: tuple[tuple[str, bytes], ...] = ()
    revoked: tuple[tuple[str, bytes], ...] = ()
    where: tuple[str, ...] = ()

    def __add__(self, other: KnownKeys) -> KnownKeys:
        return KnownKeys(self.trusted + other.trusted, self.revoked + other.revoked, self.where + other.where)


class HostKeyRefusedError(Exception):
    """The host's key is not one the user trusts. `expected` is empty when none is known."""

    def __init__(
        self, name: str, got: str, expected: tuple[str, ...], where: tuple[str, ...], revoked: bool
    ) -> None:
        super().__init__(f"host key of {name} refused: {got}")
        self.name = name
        self.got = got
        self.expected = expected
        self.where = where
        self.revoked = revoked


def fingerprint(key_type: str, blob: bytes) -> str:
    """Return the fingerprint as ssh prints it: type and SHA256 without padding."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"{key_type} SHA256:{digest}"


def parse_found(text: str, file: str) -> KnownKeys:
    """Return the keys in the output of `ssh-keygen -F NAME -f FILE`; lines that are no key are ignored.

    Host certificates (@cert-authority) are not supported by paramiko and count as unknown.
    """
    known = KnownKeys()
    where = file
    for line in text.splitlines():
        if line.startswith("#"):
            number = line.rpartition("line ")[2].strip()
            where = f"{file}:{number}" if number.isdigit() else file
            continue
        fields = line.split()
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or marker not in ("", "@revoked"):
            continue
        try:
            pair = (fields[1], base64.b64decode(fields[2], validate=True))
        except (binascii.Error, ValueError):
            continue
        known += KnownKeys(revoked=(pair,)) if marker else KnownKeys(trusted=(pair,), where=(where,))
    return known


def look_up(settings: SshSettings) -> KnownKeys:
    """Return what the known_hosts files of `settings` say about its host (hashes and patterns included)."""
    for name in settings.key_names:
        known = KnownKeys()
        for file in settings.known_hosts_files:
            if Path(file).is_file():
                done = subprocess.run(
                    ["ssh-keygen", "-F", name, "-f", file],
                    capture_output=True,
                    stdin=subprocess.DEVNULL,
                    check=False,
                )
                known += parse_found(done.stdout.decode(errors="replace"), file)
        if known.trusted or known.revoked:
            return known
    return KnownKeys()


class RefuseUntrusted(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]
    """Accept a trusted key, refuse every other one (paramiko is given no known hosts of its own)."""

    def __init__(self, known: KnownKeys) -> None:
        self.known = known

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Raise HostKeyRefusedError unless `key` is trusted and not revoked."""
        pair = (key.get_name(), key.asbytes())
        revoked = pair in self.known.revoked
        if pair in self.known.trusted and not revoked:
            return
        expected = tuple(fingerprint(*known) for known in self.known.trusted)
        raise HostKeyRefusedError(hostname, fingerprint(*pair), expected, self.known.where, revoked)


class PreferKnown:
    """Transport factory that asks the server for a key of a known type first, as ssh does."""

    def __init__(self, known: KnownKeys) -> None:
        self.types = tuple(dict.fromkeys(kind for kind, _ in known.trusted))

    def __call__(self, sock: object, **options: object) -> paramiko.Transport:
        """Return a transport over `sock` with reordered host key types."""
        transport = paramiko.Transport(sock, **options)
        security = transport.get_security_options()
        wanted = {"rsa-sha2-512", "rsa-sha2-256"} if "ssh-rsa" in self.types else set()
        wanted |= set(self.types)
        security.key_types = sorted(security.key_types, key=lambda kind: kind not in wanted)
        return transport
