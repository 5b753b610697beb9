"""How long 100 MB of journal take, against the limits: a Markdown report; exit 1 past a limit.

Run by hand: `python scripts/bench_journal.py >docs/benchmarks/journal.md`. Each form is read in a process of
its own, whose peak memory counts.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kdops.diagnose.journal import read

SIZE, SECONDS, MEGABYTES = 100_000_000, 10.0, 300.0
PIECE = 1 << 16


def line(rng: random.Random) -> str:
    """Return one line, in about the shares that a busy server of eight ranks writes."""
    tokens, rank, kind = rng.randrange(200_000), rng.randrange(8), rng.random()
    at = f"[2026-11-29 10:00:{rng.randrange(60):02d} TP{rank}] "
    if kind < 0.6:
        return (
            f"{at}Decode batch, #running-req: {rng.randrange(1, 9)}, #token: {tokens}, token usage: 0.52, "
            f"accept len: {1 + 6 * rng.random():.2f}, accept rate: 0.31, cuda graph: True, "
            f"gen throughput (token/s): {200 * rng.random():.2f}, #queue-req: 0"
        )
    if kind < 0.7:
        return (
            f"{at}Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 128, token usage: 0.41, "
            "#running-req: 3, #queue-req: 0, cuda graph: False, input throughput (token/s): 9123.41"
        )
    if kind < 0.8:
        a = round(5 * rng.random(), 2)
        return (
            f"{at}DDTREE metrics: bs=1 budget=32 avg_actual_nodes=31.20 avg_accepted_drafts={a:.2f} "
            f"avg_commit_len={a + 1:.2f} avg_accepted_depth={a:.2f}"
        )
    if kind < 0.95:
        client = f"127.0.0.1:{rng.randrange(65536)}"
        return f'[2026-11-29 10:00:01] INFO:     {client} - "POST /generate HTTP/1.1" 200 OK'
    if kind < 0.98:
        return "".join(chr(rng.randrange(32, 0x2FF)) for _ in range(120))
    return f"{at}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB."


def write(path: Path, form: str) -> int:
    """Write a journal of SIZE bytes; returns its lines."""
    rng, lines = random.Random(1), 0
    with path.open("wb") as file:
        while file.tell() < SIZE:
            text = line(rng)
            if form == "json":
                entry = {
                    "__CURSOR": f"s=1;i={lines:x};b=2",
                    "__REALTIME_TIMESTAMP": str(lines),
                    "MESSAGE": text,
                }
                text = json.dumps({**entry, "PRIORITY": "6", "_PID": "4711"})
            file.write(text.encode()[: rng.choice((10_000, 10_000, 10_000, 60))] + b"\n")
            lines += 1
    return lines


def measure(path: Path) -> None:
    """Read the journal and print seconds, peak megabytes and what was found."""
    begun = time.perf_counter()
    with path.open("rb") as file:
        found = read(iter(lambda: file.read(PIECE), b""))
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak": peak, "windows": found.windows, "lines": found.lines}))


def main() -> int:
    """Write the report to stdout."""
    rows, kept = [], True
    with tempfile.TemporaryDirectory() as folder:
        for form in ("plain", "json"):
            path = Path(folder) / form
            lines = write(path, form)
            done = subprocess.run(
                [sys.executable, __file__, str(path)], capture_output=True, text=True, check=True
            )
            told = json.loads(done.stdout)
            kept = kept and told["seconds"] < SECONDS and told["peak"] < MEGABYTES
            cells = (
                form,
                f"{lines:,}",
                f"{told['seconds']:.1f}",
                f"{told['peak']:.0f}",
                f"{told['windows']:,}",
            )
            rows.append(f"| {' | '.join(cells)} |")
    where = f"{os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    print(f"# 100 MB of journal\n\n`python {sys.argv[0]}` on {datetime.date.today()}: {where}.")
    print(f"Limits: {SECONDS:g} s and {MEGABYTES:g} MB.\n")
    print("| form | lines | s | peak MB | decode lines read |")
    print("|---|---|---|---|---|\n" + "\n".join(rows))
    return 0 if kept else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(Path(sys.argv[1]))
    else:
        sys.exit(main())
