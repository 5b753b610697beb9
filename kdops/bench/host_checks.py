"""What is asked on the host around a leg: foreign work on the GPUs, end tokens, lines the journal dropped."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kdops.bench.natural import end_tokens
from kdops.errors import ExitCode, KdopsError
from kdops.host import HostConnection

_DROPPED = "MESSAGE_ID=a596d6fe7bfa4994828e72309e95d61e"
"""systemd's sd-messages.h, SD_MESSAGE_JOURNAL_DROPPED: "Suppressed N messages from UNIT"."""
_GPU_WORK = """command -v nvidia-smi >/dev/null || exit 0
nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv,noheader,nounits | while read -r line; do
  echo "$line, $(tr '\\n' ' ' 2>/dev/null <"/proc/${line%%,*}/cgroup")"
done"""


def require_free_gpus(connection: HostConnection, unit: str) -> None:
    """Raise KdopsError (refused) if anything but the engine's own unit computes on the host's GPUs."""
    found = foreign_work(connection.run(["sh", "-c", _GPU_WORK]).text.splitlines(), unit)
    if found:
        raise KdopsError(
            f"{connection.host.name}: the GPUs are not free",
            cause=f"{found[0]} works there, and it is not the engine",
            remedy="end it or let it finish",
            code=ExitCode.REFUSED,
            evidence=tuple(found),
        )


def foreign_work(lines: Sequence[str], unit: str) -> list[str]:
    """Return the processes outside `unit`. lines: pid, MiB, name (nvidia-smi), control group (/proc)."""
    found = []
    for line in lines:
        pid, _, rest = line.partition(",")
        if not pid.strip().isdecimal() or unit in rest:
            continue
        memory, _, rest = rest.partition(",")
        name = rest.rpartition(",")[0].strip()
        found.append(f"process {pid.strip()} ({name or 'unknown'}, {memory.strip()} MiB)")
    return found


def ends_of(connection: HostConnection, model: str) -> tuple[int, ...] | None:
    """Return the end tokens of the model in that folder on the host, None if it does not say."""
    for name in ("generation_config.json", "config.json"):
        told = connection.run(["cat", "--", f"{model}/{name}"])
        if not told.code and (found := end_tokens(told.stdout)):
            return found
    return None


def clock(connection: HostConnection) -> str:
    """Return the host's time for `dropped_lines`: seconds since the epoch."""
    return connection.run(["date", "+%s"], check=True).text.strip()


def dropped_lines(connection: HostConnection, unit: str, since: str) -> list[str]:
    """Return journald's words about lines of `unit` it suppressed since then."""
    asked = ["journalctl", "-q", "--no-pager", "-o", "json", "--output-fields=MESSAGE", f"--since=@{since}"]
    return suppressions(connection.run([*asked, _DROPPED]).text.splitlines(), unit)


def suppressions(lines: Sequence[str], unit: str) -> list[str]:
    """Return the messages in journal entries (JSON, one a line) that name `unit`."""
    found = []
    for line in lines:
        try:
            told = json.loads(line).get("MESSAGE")
        except (ValueError, AttributeError):
            continue
        if isinstance(told, str) and unit in told:
            found.append(told)
    return found
