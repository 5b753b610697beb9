"""What an upstream issue needs of a host, as one archive without secrets."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kdops import __version__
from kdops.fleet.redact import secrets
from kdops.fleet.scrub import scrub
from kdops.guard.layout import ON_HOST
from kdops.host.connection import HostConnection
from kdops.host.credentials import api_key
from kdops.host.probe import probe
from kdops.host.status import HostStatus

_LINES = 20_000
_MOST = 30_000_000
_GPU = (
    "command -v nvidia-smi >/dev/null || { echo 'no NVIDIA driver on this host'; exit 0; }; "
    "nvidia-smi; nvidia-smi -q; nvidia-smi topo -m"
)
_STACKS = r"""
pids=$(grep -lF "/$1" /proc/[0-9]*/cgroup 2>/dev/null | tr -dc '0-9\n')
[ -n "$pids" ] || { echo "no process of $1 runs"; exit 0; }
spy=$(ls "$2"/*/bin/py-spy 2>/dev/null | head -n 1); spy=${spy:-$(command -v py-spy)}
[ -n "$spy" ] || echo "py-spy is not on this host: what the kernel tells"
for pid in $pids; do
  echo "===== pid $pid: $(tr '\0' ' ' </proc/$pid/cmdline | cut -c1-300)"
  if [ -n "$spy" ]; then timeout 20 "$spy" dump --nonblocking --pid "$pid" 2>&1
  else
    grep -E '^(State|Threads|VmRSS|voluntary)' /proc/$pid/status
    for task in /proc/$pid/task/*; do
      printf '%s %s %s\n' "${task##*/}" "$(cat $task/comm)" "$(cat $task/wchan 2>/dev/null)"
    done
  fi
done
"""


class Member(StrEnum):
    """The files of an archive."""

    MANIFEST = "manifest.json"
    JOURNAL = "journal.txt"
    UNIT = "unit.txt"
    SETTINGS = "settings.json"
    SERVER_INFO = "server_info.json"
    METRICS = "metrics.txt"
    BENCH = "bench.json"
    GPU = "gpu.txt"
    STACKS = "stacks.txt"
    DEPLOYS = "deploys.txt"
    STATUS = "status.json"


@dataclass
class Collected:
    """files: name → text, secrets out. missing: name → why it is not there."""

    files: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def collect(connection: HostConnection, bench: Mapping[str, Any] | None) -> Collected:
    """Ask the host for everything. bench: the last measurement known here. Raises UnreachableError."""
    found = Collected()
    status = probe(connection)
    known = _secrets(connection)
    unit = status.unit.name

    def put(name: str, text: str | None, why: str = "the host does not have it") -> None:
        if text:
            found.files[name] = scrub(text[-_MOST:], known)
        else:
            found.missing[name] = why

    journal = ["journalctl", "--quiet", "--no-pager", "--output=short-iso-precise", "--all"]
    put(Member.JOURNAL, _run(connection, [*journal, f"--unit={unit}", f"--lines={_LINES}"], 120))
    shown = 'systemctl cat "$1"; echo; systemctl show "$1"; systemd-analyze security --no-pager "$1"'
    put(Member.UNIT, _run(connection, ["sh", "-c", shown, "sh", unit]))
    manifest = str(ON_HOST.current / "manifest.json")
    put(Member.SETTINGS, _run(connection, ["cat", manifest]), "nothing is deployed")
    info = status.engine.server_info if status.engine else None
    put(Member.SERVER_INFO, json.dumps(info, indent=1) if info else None, "the engine does not answer")
    put(Member.METRICS, status.engine.metrics if status.engine else None, "the engine does not answer")
    put(
        Member.BENCH, json.dumps(bench, indent=1) if bench else None, "nothing was measured from this machine"
    )
    put(Member.GPU, _run(connection, ["sh", "-c", _GPU], 60))
    put(Member.STACKS, _run(connection, ["sh", "-c", _STACKS, "sh", unit, str(ON_HOST.venvs)], 200))
    put(Member.DEPLOYS, _run(connection, ["tail", "-n", "30", str(ON_HOST.audit)]), "no deploy yet")
    put(Member.STATUS, json.dumps(_overview(status), indent=1))
    return found


def pack(host: str, found: Collected, now: float | None = None) -> bytes:
    """Return the archive (.tar.gz): the files, and manifest.json with their digests and what is missing."""
    when = time.time() if now is None else now
    manifest = {
        "host": host,
        "kdops": __version__,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
        "files": {name: _facts(text) for name, text in sorted(found.files.items())},
        "missing": dict(sorted(found.missing.items())),
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in [(Member.MANIFEST, json.dumps(manifest, indent=1)), *sorted(found.files.items())]:
            body = text.encode(errors="replace")
            info = tarfile.TarInfo(f"kdops-report-{host}/{name}")
            info.size, info.mtime, info.mode = len(body), int(when), 0o644
            archive.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def _facts(text: str) -> dict[str, Any]:
    body = text.encode(errors="replace")
    return {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


def _overview(status: HostStatus) -> dict[str, Any]:
    return {
        "release": status.release,
        "unit": {"active": status.unit.active, "sub": status.unit.sub, "status": status.unit.status_text},
        "restarts": status.unit.restarts,
        "drift": list(status.drift),
        "outcome": status.outcome and {"result": status.outcome.result, "failure": status.outcome.failure},
        "disk_free": status.disk_free,
        "load": list(status.load),
    }


def _secrets(connection: HostConnection) -> list[str]:
    """Return what must not leave the host: the API key, and secrets of the engine's environment."""
    environment = _run(connection, ["cat", str(ON_HOST.current / "engine.env")])
    return [secret for secret in (api_key(connection), *secrets(environment)) if secret]


def _run(connection: HostConnection, argv: list[str], timeout: float = 30.0) -> str:
    return connection.run(argv, timeout=timeout).text.replace("\0", "")
