"""What OpenSSH itself would do to reach a host: `ssh -G` asked, its answer as a frozen value.

The user's real configuration (Include, Match, ProxyJump, ...) is interpreted by ssh alone, so kdops,
Ansible and the user's own `ssh HOST` always mean the same connection.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kdops.errors import UsageError

if TYPE_CHECKING:
    from kdops.fleet import SshTarget

ALIVE_INTERVAL_S = 2
ALIVE_COUNT_MAX = 2
CONNECT_TIMEOUT_S = 5.0
_ASK_TIMEOUT_S = 10.0
_LONGEST_CHAIN = 8


@dataclass(frozen=True)
class SshSettings:
    """One hop, as ssh_config(5) resolves it. `jump` is the hop before this one, if there is one."""

    address: str
    hostname: str
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    known_hosts_files: tuple[str, ...] = ()
    host_key_alias: str | None = None
    proxy_jump: tuple[str, ...] = ()
    proxy_command: str | None = None
    identities_only: bool = False
    agent: bool = True
    connect_timeout: float | None = None
    jump: SshSettings | None = None

    @property
    def key_names(self) -> tuple[str, ...]:
        """Names to look up in known_hosts, best first.

        Source: OpenSSH's sshconnect.c: an alias stands alone; [host]:port falls back to the bare host.
        """
        if self.host_key_alias:
            return (self.host_key_alias.lower(),)
        name = self.hostname.lower()
        return (name,) if self.port == 22 else (f"[{name}]:{self.port}", name)

    @property
    def label(self) -> str:
        """user@host:port for messages."""
        return f"{self.user}@{self.hostname}:{self.port}"


def parse(address: str, text: str, is_file: Callable[[str], bool] = lambda _: False) -> SshSettings:
    """Return the settings in the output of `ssh -G`; lines it does not know are ignored.

    is_file tells where paths with spaces end: ssh prints several known_hosts files without quotes.
    Raises UsageError when the output has no usable hostname, port and user.
    """
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        values.setdefault(key.lower(), []).append(value.strip())

    def one(key: str) -> str | None:
        value = values.get(key, [""])[0]
        return value if value and value.lower() != "none" else None

    hostname, user, port = one("hostname"), one("user"), one("port")
    if not hostname or not user or not port or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII):
        raise UsageError(
            f"ssh has no usable settings for {address!r}",
            cause="the output of `ssh -G` lacks a hostname, a user or a port",
            remedy=f"look at the output of: ssh -G {shlex.quote(address)}",
        )
    tokens = {"h": hostname, "p": port, "r": user, "n": address, "d": str(Path.home()), "%": "%"}
    jump = one("proxyjump")
    command = one("proxycommand")
    timeout = one("connecttimeout")
    return SshSettings(
        address=address,
        hostname=hostname,
        port=int(port),
        user=user,
        identity_files=tuple(_path(v, tokens) for v in values.get("identityfile", []) if v and v != "none"),
        known_hosts_files=tuple(
            _path(v, tokens)
            for key in ("userknownhostsfile", "globalknownhostsfile")
            for v in _paths(one(key) or "", is_file)
        ),
        host_key_alias=one("hostkeyalias"),
        proxy_jump=tuple(hop.strip() for hop in jump.split(",") if hop.strip()) if jump else (),
        proxy_command=_expand(command, tokens) if command else None,
        identities_only=values.get("identitiesonly", ["no"])[0].lower() in ("yes", "true"),
        agent=values.get("identityagent", [""])[0].lower() != "none",
        connect_timeout=float(timeout)
        if timeout and re.fullmatch(r"[0-9]{1,6}", timeout, re.ASCII)
        else None,
    )


def resolve(target: SshTarget) -> SshSettings:
    """Ask ssh how it would reach `target`, jump hosts included.

    Raises UsageError when ssh refuses the target, is missing, or the jump hosts form a ring.
    """
    return _resolve(target_args(target), target.address, target.common_args, ())


def target_args(target: SshTarget) -> list[str]:
    """Return the ssh options of `target`, in the order Ansible's ssh plugin gives them."""
    args: list[str] = []
    if target.port is not None:
        args += ["-p", str(target.port)]
    if target.key_file is not None:
        # Path.expanduser raises for the home of nobody; ssh names the file that is not there.
        path = os.path.expanduser(target.key_file).replace('"', '\\"')  # noqa: PTH111
        args += ["-o", f'IdentityFile="{path}"']  # -i would drop a missing file silently
    if target.user is not None:
        args += ["-l", target.user]
    return args + list(target.common_args)


def _resolve(args: list[str], address: str, common: tuple[str, ...], seen: tuple[str, ...]) -> SshSettings:
    if len(seen) > _LONGEST_CHAIN:
        raise UsageError(
            f"the jump hosts of {seen[0]} never end",
            cause=" -> ".join(seen),
            remedy="break the ring of ProxyJump lines in your ssh configuration",
        )
    settings = parse(address, _ask(args, address), lambda path: Path(path).is_file())
    if not settings.proxy_jump:
        return settings
    *before, last = settings.proxy_jump
    # Options of the destination do not apply to jump hosts (ssh(1), -J); a configuration file does.
    config = _config_file(common)
    where, jump_args = split_jump(last)
    jump_args += [*config, *(["-J", ",".join(before)] if before else [])]
    return replace(settings, jump=_resolve(jump_args, where, tuple(config), (*seen, address)))


def split_jump(hop: str) -> tuple[str, list[str]]:
    """Return (host, ssh options) of one ProxyJump hop: [user@]host[:port], [user@][address]:port or ssh://..."""
    user, _, rest = hop.removeprefix("ssh://").rstrip("/").rpartition("@")
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::([0-9]+))?", rest)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    else:
        host, port = rest, None
    return host, [*(["-p", port] if port else []), *(["-l", user] if user else [])]


def _config_file(common: tuple[str, ...]) -> list[str]:
    for i, arg in enumerate(common):
        if arg == "-F" and i + 1 < len(common):
            return ["-F", common[i + 1]]
        if arg.startswith("-F") and len(arg) > 2:
            return [arg]
    return []


def _ask(args: list[str], address: str) -> str:
    try:
        done = subprocess.run(
            ["ssh", "-G", *args, "--", address],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError(
            "ssh is not installed here",
            cause="kdops asks OpenSSH's client how to reach a host",
            remedy="install it (Debian: apt-get install openssh-client)",
        ) from None
    except ValueError:
        raise UsageError(
            f"{address!r} is no address", cause="it holds a NUL byte", remedy="correct ansible_host"
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"`ssh -G {address}` did not answer in {_ASK_TIMEOUT_S:.0f} s",
            cause="a `Match exec` in the ssh configuration may hang",
            remedy=f"run it by hand: ssh -G {shlex.quote(address)}",
        ) from None
    if done.returncode:
        said = tuple(done.stderr.decode(errors="replace").splitlines()[-5:])
        raise UsageError(
            f"ssh refuses its settings for {address!r}",
            cause=said[-1] if said else f"`ssh -G` ended with {done.returncode}",
            remedy="correct ansible_host, ansible_ssh_common_args or your ssh configuration",
            evidence=said,
        )
    return done.stdout.decode(errors="replace")


def _paths(value: str, is_file: Callable[[str], bool]) -> list[str]:
    words, found = value.split(" "), []
    while words:
        longest = next((n for n in range(len(words), 1, -1) if is_file(" ".join(words[:n]))), 1)
        found.append(" ".join(words[:longest]))
        words = words[longest:]
    return [path for path in found if path]


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda m: tokens.get(m[1], m[0]), text)


def _path(text: str, tokens: Mapping[str, str]) -> str:
    expanded = _expand(text.strip('"'), tokens)
    return str(Path.home()) + expanded[1:] if expanded == "~" or expanded.startswith("~/") else expanded
