"""Run the machine's own tools; a failure becomes a KdopsError with the tool's last words."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kdops.errors import KdopsError

FILES = Path(__file__).parent / "files"
_SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

Arg = str | Path
Command = Sequence[Arg]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's environment with the system folders on PATH and messages in English."""
    path = os.environ.get("PATH", "")
    return {**os.environ, "PATH": f"{path}:{_SYSTEM_PATH}", "LC_ALL": "C.UTF-8", **(extra or {})}


def attempt(
    *args: Arg, env: Mapping[str, str] | None = None, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command and return its result whatever its exit code is; stdin is empty.

    Inheritable descriptors stay open on purpose: a lab's lock is held until its last child is gone.
    """
    return subprocess.run(
        [str(arg) for arg in args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        close_fds=False,
        env=environment(env),
        timeout=timeout,
    )


def run(*args: Arg, what: str, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its stdout. Raises KdopsError("`what` failed") on a non-zero exit code."""
    result = attempt(*args, env=env)
    if result.returncode != 0:
        lines = (result.stderr + result.stdout).strip().splitlines()
        raise KdopsError(
            f"{what} failed",
            cause=f"{Path(str(args[0])).name} ended with exit code {result.returncode}",
            remedy="see the lines above; `kdops lab down` removes what is left of the lab",
            evidence=tuple(lines[-12:]),
        )
    return result.stdout


def contained(*args: Arg, network: bool = True) -> Command:
    """Return the command wrapped so that it and all its descendants die with this process, mounts included.

    It becomes PID 1 of a PID namespace (killed as one) with a private mount namespace and, if asked, no
    network.
    """
    wrapped: list[Arg] = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ]
    return [*wrapped, "--mount-proc", *([] if network else ["--net"]), *args]
