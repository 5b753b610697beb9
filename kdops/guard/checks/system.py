"""systemd, clock and host memory."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from kdops.guard.checks.ask import Question
from kdops.guard.checks.row import Row, State

_SYSTEMD = 247  # LoadCredential=
_SKEW_S = 60.0
_CPU_RESERVE = 1_000_000_000
"""Bytes that Python, SGLang's processes and activations take beside weights and KV pool on the CPU."""


def systemd() -> Iterator[Row]:
    out = _output("systemctl", "--version")
    found = re.match(r"systemd (\d+)", out)
    version = found[1] if found else "unknown"
    if found and int(version) >= _SYSTEMD:
        yield Row("systemd", State.OK, f"version {version}")
        return
    text = f"version {version}; {_SYSTEMD} or newer is needed"
    yield Row("systemd", State.FAIL, text, "upgrade the host", "systemd is too old")


def clock(asked: Question) -> Iterator[Row]:
    """Compare with the client's clock: journals, leases and histories are read side by side."""
    if not asked.now:
        return
    skew = time.time() - asked.now
    synchronised = _output("timedatectl", "show", "--property=NTPSynchronized", "--value").strip()
    words = {"yes": "synchronised", "no": "not synchronised by the host itself"}.get(synchronised, "")
    text = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's"
    if abs(skew) > _SKEW_S:
        yield Row("clock", State.WARN, f"the host's clock is {text}", "set up time synchronisation there")
    else:
        yield Row("clock", State.OK, ", ".join(filter(None, (text, words))))


def memory(asked: Question) -> Iterator[Row]:
    """Return nothing where /proc/meminfo cannot be read."""
    told = meminfo()
    if not told:
        return
    total, free = told["MemTotal"], told["MemAvailable"]
    words = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB available"
    settings = asked.settings
    if settings.get("device") != "cpu":
        largest = max((_largest(Path(path)) for path in asked.models), default=0)
        if largest > total:
            text = f"{words}; the largest weight file has {largest / 1e9:.1f} GB"
            yield Row("memory", State.FAIL, text, "add memory or swap", "the host has too little memory")
        else:
            yield Row("memory", State.OK, words)
        return
    # On the CPU SGLang takes this share of what is available when it starts (memory_hook.py), at once.
    share = float(settings.get("memory_fraction", 0))
    left = free * (1 - share)
    if settings.get("max_total_tokens") is None and left < _CPU_RESERVE:
        text = f"engine_memory_fraction {share:g} leaves {left / 1e9:.1f} GB of {words}"
        remedy = f"engine_memory_fraction={max(0.05, 1 - 1.5 * _CPU_RESERVE / free):.2f} leaves enough"
        yield Row("memory", State.FAIL, text, remedy, "the memory fraction is too high")
    else:
        yield Row("memory", State.OK, words)


def meminfo() -> dict[str, int]:
    """Return MemTotal and MemAvailable in bytes; empty if the kernel does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    wanted = ("MemTotal", "MemAvailable")
    if not all(name in found for name in wanted):
        return {}
    return {name: int(found[name].split()[0]) * 1024 for name in wanted}


def _largest(folder: Path) -> int:
    return max((file.stat().st_size for file in folder.glob("*.safetensors")), default=0)


def _output(*argv: str) -> str:
    try:
        return subprocess.run(
            argv, check=False, capture_output=True, text=True, errors="replace", timeout=5
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
