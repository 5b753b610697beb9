"""Where a step's time goes: SGLang's own profiler over one generation, added up by kind."""

from __future__ import annotations

import collections
import gzip
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from servers import Server

WAIT_SECONDS, TOP = 60.0, 12
COLLECTIVES = ("nccl", "all_reduce", "allreduce", "all_gather", "allgather", "cross_device")


def summarise(events: Sequence[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Per step, from a Chrome trace's events: milliseconds of kernels and of collectives among them, launches
    from the host, and the kernels that take most.
    """
    kernels: collections.Counter[str] = collections.Counter()
    calls: collections.Counter[str] = collections.Counter()
    for event in events:
        kind = event.get("cat")
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            kernels[event["name"]] += event["dur"]
        elif kind in ("cuda_runtime", "cuda_driver"):
            calls[event["name"]] += 1
    collective = sum(
        spent for name, spent in kernels.items() if any(word in name.lower() for word in COLLECTIVES)
    )

    def per_step(value: float, digits: int = 4) -> float:
        return round(value / steps, digits)

    return {
        "steps": steps,
        "kernels_ms": per_step(kernels.total() / 1000),
        "collectives_ms": per_step(collective / 1000),
        "launches": {name: per_step(count, 2) for name, count in calls.most_common(6)},
        "top_us": {name[:90]: per_step(spent, 2) for name, spent in kernels.most_common(TOP)},
    }


def profile(server: Server, ids: list[int], tokens: int, folder: Path) -> list[dict[str, Any]]:
    """One summary for each rank. Raises TimeoutError when a trace does not come."""
    folder.mkdir(parents=True, exist_ok=True)
    server.generate(ids, tokens)
    server.request("start_profile", {"output_dir": str(folder), "activities": ["CPU", "GPU"]})
    meta = server.generate(ids, tokens)["meta_info"]
    server.request("stop_profile", {})
    steps = meta.get("spec_verify_ct") or tokens - 1
    deadline = time.monotonic() + WAIT_SECONDS
    while len(paths := sorted(folder.rglob("*.trace.json.gz"))) < server.setup.tp:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(paths)} of {server.setup.tp} traces after {WAIT_SECONDS} s")
        time.sleep(0.5)
    found = []
    for path in paths:
        while (events := _events(path)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is still not whole after {WAIT_SECONDS} s")
            time.sleep(0.5)
        found.append(summarise(events, steps))
        path.unlink()
    return found


def _events(path: Path) -> list[dict[str, Any]] | None:
    """The trace's events, None while the file is still being written."""
    try:
        with gzip.open(path, "rt") as file:
            events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    except (EOFError, gzip.BadGzipFile, json.JSONDecodeError):
        return None
    return events
