"""A fleet in words: the documents that the probe would send from hosts in typical states, one a second."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from kdops.errors import KdopsError, UnreachableError
from kdops.host.journal import Entry
from kdops.tui.feed import Event, Failed, Heard, Lines

BEGUN = 1_795_000_000.0
"""When the sessions of the tests happen, so that frames never change."""

COMMITS = (120, 260, 340, 390, 310, 220, 140, 90)


def document(name: str, t: float, **changes: Any) -> dict[str, Any]:
    """Return what a healthy host says `t` seconds into the session; `changes` replace parts of it."""
    wave = math.sin(t / 7.0)
    steps = [int(count * (1 + t / 10)) for count in COMMITS]
    below = [sum(steps[: i + 1]) for i in range(len(steps))]
    metrics = [
        f"sglang:gen_throughput {240 + 40 * wave:.1f}",
        "sglang:num_running_reqs 3",
        "sglang:num_queue_reqs 0",
        f"sglang:token_usage {0.4 + 0.05 * wave:.3f}",
        "sglang:num_used_tokens 196608",
        *(f'kdtree_commit_length_bucket{{le="{i + 1}.0"}} {count}' for i, count in enumerate(below)),
    ]
    unit = f"kdtree-{name}.service"
    return {
        "unit": unit,
        "properties": properties(t),
        "unit_sha256": "aa",
        "current": "ddtree-0a1b2c3d4e",
        "manifest": {"profile": "ddtree", "files": {unit: "aa"}},
        "changed_files": [],
        "txn": {"committed": [{"release": "ddtree-0a1b2c3d4e"}], "transaction": None, "outcome": None},
        "boot_id": "b",
        "monotonic": 93_600.0 + t,
        "boottime": 93_600.0 + t,
        "errors": {},
        "gpus": [
            [str(i), "NVIDIA H200", str(131_000 + 300 * i), "143771", f"{min(99, 82 + 2 * i + 5 * wave):.0f}",
             str(58 + i), f"{520 + 20 * i + 30 * wave:.0f}", "1830", "0x0000000000000000"]
            for i in range(4)
        ],
        "engine": {
            "port": 30000, "health": 200, "metrics": "\n".join(metrics) + "\n",
            "server_info": {"version": "0.5.23", "max_total_num_tokens": 491_520},
        },
        **changes,
    }  # fmt: skip


def properties(t: float, **changes: str) -> dict[str, str]:
    """Return the healthy host's unit properties with changes."""
    told = f"running=3 queued=0 al={4.1 + 0.4 * math.sin(t / 7.0):.2f}"
    healthy = {
        "LoadState": "loaded", "ActiveState": "active", "SubState": "running", "NeedDaemonReload": "no",
        "StatusText": told, "StateChangeTimestampMonotonic": "1000000", "NRestarts": "0",
        "InvocationID": "a1b2", "MainPID": "4242",
    }  # fmt: skip
    return {**healthy, **changes}


def heard(name: str, t: float) -> Event:
    """Return what host `name` of FLEET says at `t`."""
    document_of = {
        "b300-0": document,
        "b300-1": _loading,
        "ct200-0": _hot,
        "ct200-1": _failed,
        "lab0": _measured,
    }
    if name not in document_of:
        return Failed(name, BEGUN + t, dead(name))
    return Heard(name, BEGUN + t, document_of[name](name, t), 21.0 if name == "lab0" else 412.0)


def _loading(name: str, t: float) -> dict[str, Any]:
    since = str(int((93_600.0 - 95) * 1e6))
    told = properties(
        t, ActiveState="activating", SubState="start", StatusText="phase=weights 95 s",
        StateChangeTimestampMonotonic=since,
    )  # fmt: skip
    return document(name, t, properties=told, engine={"port": 30000})


def _hot(name: str, t: float) -> dict[str, Any]:
    gpus = [[*row[:5], "86", "700", "1410", "0x0000000000000024"] for row in document(name, t)["gpus"]]
    manifest = {"profile": "linear", "files": {f"kdtree-{name}.service": "bb"}}
    return document(name, t, gpus=gpus, manifest=manifest, current="linear-99aabbccdd")


def _failed(name: str, t: float) -> dict[str, Any]:
    told = properties(
        t, ActiveState="failed", SubState="failed", Result="exit-code", ExecMainStatus="70", StatusText=""
    )
    why = ("the engine died while loading", "CUDA out of memory", "lower engine_memory_fraction")
    outcome = {
        "result": "rolled-back", "release": "ddtree-ffee00", "serves": None, "by": "guard", "at": "then",
        "failure": dict(zip(("title", "cause", "remedy"), why, strict=True)),
    }  # fmt: skip
    txn = {"committed": [], "transaction": None, "outcome": outcome}
    return document(name, t, properties=told, engine={"port": 30000}, txn=txn, gpus=[])


def _measured(name: str, t: float) -> dict[str, Any]:
    return {"paused": True, "time": BEGUN + t} if t > 2 else document(name, t, gpus=[])


def dead(name: str) -> KdopsError:
    """Return why a host is out of reach."""
    return UnreachableError(
        f"{name}: timed out",
        cause="no answer from 10.0.0.9 port 22",
        remedy="check that the host is up: ssh -v 10.0.0.9",
    )


FLEET = ("b300-0", "b300-1", "ct200-0", "ct200-1", "lab0", "old-box")

_AT = "[2026-11-18 12:26:40]"
LINES = (
    (6, "Starting kdtree-b300-0.service - kdops engine b300-0 (ddtree)..."),
    (6, f"{_AT} server_args=ServerArgs(model_path='/models/kimi-k2.6', tp_size=4)"),
    (6, f"{_AT} Load weight begin. avail mem=139.80 GB"),
    (4, f"{_AT} WARNING: attention backend not set, choosing triton"),
    (6, f"{_AT} Capture draft cuda graph begin. This can take up to several minutes."),
    (6, f"{_AT} kdtree: ready after 142 s"),
    (6, f"{_AT} Decode batch, #running-req: 3, #token: 196608, token usage: 0.40, accept len: 4.12, "
        "gen throughput (token/s): 241.20, #queue-req: 0"),
    (6, f"{_AT} DDTREE metrics: bs=3 budget=16 avg_actual_nodes=16.00 avg_accepted_drafts=3.12 "
        "avg_commit_len=4.12 avg_accepted_depth=3.12"),
    (3, f"{_AT} torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    (6, f"{_AT} Prefill batch, #new-seq: 1, #new-token: 4096, #cached-token: 512, token usage: 0.42"),
)  # fmt: skip


def entries(count: int = len(LINES), start: int = 0) -> tuple[Entry, ...]:
    """Return `count` journal entries, going round LINES."""
    made = []
    for n in range(start, start + count):
        priority, message = LINES[n % len(LINES)]
        made.append(Entry(f"b=1;m={n}", BEGUN + n * 0.25, message, priority, "kdtree-b300-0", 4242, "a1"))
    return tuple(made)


def events(seconds: int) -> Iterator[Event]:
    """Yield a session of FLEET, a look a second, with a journal at its beginning."""
    yield Lines("b300-0", BEGUN, entries(40))
    for t in range(seconds):
        for name in FLEET:
            yield heard(name, float(t))
