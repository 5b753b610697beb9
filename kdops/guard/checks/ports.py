"""Who listens on the ports that the engine binds: port, process, unit."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kdops.guard.checks.ask import Question
from kdops.guard.checks.row import Row, State
from kdops.guard.context import Context

_HOLDER = re.compile(r'users:\(\("([^"]*)",pid=(\d+)')
_DP_BASE, _DP_PORTS = 233, 7
"""DP attention on one node binds port + 233 and the following ones (SGLang 0.5.23, PortArgs.init_new)."""


def rows(ctx: Context, asked: Question) -> Iterator[Row]:
    ours, free = our_units(ctx, asked), []
    for port, use, key in _wanted(asked):
        taken = None
        for name, pid in listeners(port):
            unit = unit_of(pid)
            if unit not in ours:
                taken = f"process {name} (pid {pid}, unit {unit or 'none'}) listens on it"
        if taken:
            text, remedy = f"{taken}; the engine needs it for {use}", f"stop it, or choose another {key}"
            yield Row("ports", State.FAIL, text, remedy, f"port {port} is taken")
        else:
            free.append(str(port))
    if free:
        yield Row("ports", State.OK, f"{', '.join(free)} free or our own service's")


def our_units(ctx: Context, asked: Question) -> set[str]:
    """Return the units that this deploy replaces."""
    state = ctx.store.load()
    ours = {committed.unit for committed in state.committed[-1:]} | ({asked.adopt} if asked.adopt else set())
    return ours | ({state.transaction.unit, state.transaction.adopting} if state.transaction else set())


def listeners(port: int) -> list[tuple[str, int]]:
    """Return (process name, pid) of each process that listens on a TCP port."""
    argv = ["ss", "-Hltnp", f"sport = :{port}"]
    out = subprocess.run(argv, check=False, capture_output=True, text=True, errors="replace").stdout
    return [(name, int(pid)) for name, pid in _HOLDER.findall(out)]


def unit_of(pid: int) -> str:
    """Return the service or scope of a process, "" if it has none."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
    found = re.findall(r"/([^/\n]+\.(?:service|scope))", groups)
    return found[-1] if found else ""


def _wanted(asked: Question) -> Iterator[tuple[int, str, str]]:
    port = int(asked.manifest["port"])
    yield port, "HTTP", "engine_port"
    extra = asked.settings.get("extra_args") or {}
    for option, use in (("nccl-port", "NCCL"), ("disaggregation-bootstrap-port", "disaggregation")):
        if str(extra.get(option, "")).isdecimal():
            yield int(extra[option]), use, f"{option} in engine_extra_args"
    rendezvous = str(extra.get("dist-init-addr", "")).rpartition(":")[2]
    if rendezvous.isdecimal():
        yield int(rendezvous), "the rendezvous", "dist-init-addr in engine_extra_args"
    elif extra.get("enable-dp-attention"):
        first = port + _DP_BASE if port + _DP_BASE + _DP_PORTS <= 65535 else port - _DP_BASE
        for internal in range(first, first + _DP_PORTS):
            yield internal, "its own processes", "engine_port"
