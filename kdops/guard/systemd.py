"""systemd through systemctl and journalctl (systemctl(1), org.freedesktop.systemd1(5) for the property
names).
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Protocol

from kdops.errors import KdopsError

_PROPERTIES = {
    "LoadState": "load",
    "ActiveState": "active",
    "SubState": "sub",
    "InvocationID": "invocation",
    "Job": "job",
    "Result": "result",
    "ExecMainCode": "exit_code",
    "ExecMainStatus": "exit_status",
    "MainPID": "pid",
    "NRestarts": "restarts",
    "StatusText": "status_text",
    "NeedDaemonReload": "need_reload",
    "DropInPaths": "dropins",
    "FragmentPath": "fragment",
    "UnitFileState": "enabled",
}


@dataclass(frozen=True)
class Unit:
    """A unit's properties as systemd reports them (strings, empty when unset)."""

    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    invocation: str = ""
    job: str = ""
    result: str = "success"
    exit_code: str = "0"
    exit_status: str = "0"
    pid: str = "0"
    restarts: str = "0"
    status_text: str = ""
    need_reload: str = "no"
    dropins: str = ""
    fragment: str = ""
    enabled: str = ""

    @property
    def queued(self) -> bool:
        """A start, stop or restart job waits or runs."""
        return self.job not in ("", "0")

    @property
    def up(self) -> bool:
        """Something of it runs."""
        return self.active in ("active", "activating", "deactivating", "reloading")


class Manager(Protocol):
    """What the guard asks of systemd."""

    def show(self, unit: str) -> Unit: ...
    def reload(self) -> None: ...
    def restart(self, unit: str) -> None: ...
    def start(self, unit: str) -> None: ...
    def stop(self, unit: str) -> None: ...
    def enable(self, unit: str) -> None: ...
    def disable(self, unit: str) -> None: ...
    def journal(self, invocation: str, lines: int) -> tuple[str, ...]: ...


class Systemctl:
    """The real one. Start and restart only queue the job: an engine takes minutes to load."""

    def show(self, unit: str) -> Unit:
        out = self._run("show", unit, "--property", ",".join(_PROPERTIES))
        pairs = (line.partition("=") for line in out.splitlines())
        return Unit(**{_PROPERTIES[key]: value for key, _, value in pairs if key in _PROPERTIES})

    def reload(self) -> None:
        self._run("daemon-reload")

    def restart(self, unit: str) -> None:
        self._run("reset-failed", unit, check=False)
        self._run("restart", "--no-block", unit)

    def start(self, unit: str) -> None:
        self._run("reset-failed", unit, check=False)
        self._run("start", "--no-block", unit)

    def stop(self, unit: str) -> None:
        self._run("stop", unit)

    def enable(self, unit: str) -> None:
        self._run("enable", "--quiet", unit)

    def disable(self, unit: str) -> None:
        self._run("disable", "--quiet", unit, check=False)

    def journal(self, invocation: str, lines: int) -> tuple[str, ...]:
        if not invocation:
            return ()
        subprocess.run(["journalctl", "--sync"], check=False, capture_output=True)
        match = f"_SYSTEMD_INVOCATION_ID={invocation}"
        done = subprocess.run(
            ["journalctl", "--quiet", "--output=cat", f"--lines={lines}", match],
            check=False,
            capture_output=True,
        )
        return tuple(done.stdout.decode(errors="replace").splitlines())

    def _run(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            ["systemctl", *arguments], check=False, capture_output=True, text=True, errors="replace"
        )
        if check and done.returncode != 0:
            raise KdopsError(
                f"systemctl {arguments[0]} failed",
                cause=done.stderr.strip() or f"exit status {done.returncode}",
                remedy="look at `systemctl status` and the journal of this host",
                evidence=("systemctl " + " ".join(arguments),),
            )
        return done.stdout
