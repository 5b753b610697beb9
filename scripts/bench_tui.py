"""How the dashboard holds up: key to paint under load, CPU at 8 hosts, memory over a long replay.

usage: bench_tui.py [--seconds N] [--replay SECONDS]   prints a Markdown report; exit 1 past a limit
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "tui"))

import session  # type: ignore[import-not-found]
from bench_cli import machine

from kdops.fleet import Host, SshTarget
from kdops.fleet.gpus import BY_ID
from kdops.host.journal import entries
from kdops.tui import start
from kdops.tui.app import Dashboard
from kdops.tui.feed import Event, Heard, Inbox
from kdops.tui.live import Live
from kdops.tui.recording import Recorder
from kdops.tui.replay import Replay

HOSTS = tuple(f"box{i}" for i in range(8))
LINES_A_SECOND = 10_000
PAINT_LIMIT = 0.100
CPU_LIMIT = 0.15
GROWTH_LIMIT = 0.05
KEYS = ("j", "k")
BETWEEN = "from view to view"


class Painted(Dashboard):
    """Knows when it last wrote to the terminal."""

    painted = 0.0

    def _display(self, *arguments: Any) -> None:
        super()._display(*arguments)
        self.painted = time.perf_counter()


class Busy:
    """Eight hosts a second as JSON lines, `lines` of journal a second, and (behind `dead`) a silent host."""

    live = True

    def __init__(self, lines: int, dead: Live | None = None) -> None:
        self.hosts = (*HOSTS, *(dead.hosts if dead else ()))
        self._dead, self._lines = dead, lines
        self._inbox = Inbox()
        self._stopped = threading.Event()
        self.fed = 0

    def start(self) -> None:
        if self._dead:
            self._dead.start()
        threading.Thread(target=self._sample, daemon=True).start()
        if self._lines:
            threading.Thread(target=self._talk, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._inbox.close()

    def now(self) -> float:
        return time.time()

    def follow(self, host: str) -> None:
        pass

    def drain(self) -> list[Event]:
        return [*self._inbox.drain(), *(self._dead.drain() if self._dead else [])]

    def _sample(self) -> None:
        t = 0.0
        while not self._stopped.wait(1.0):
            t += 1.0
            for name in HOSTS:
                line = json.dumps(session.document(name, t))
                self._inbox.put(Heard(name, time.time(), json.loads(line), 400.0))

    def _talk(self) -> None:
        writer = subprocess.Popen(
            [sys.executable, __file__, "--write-journal", str(self._lines)], stdout=subprocess.PIPE, bufsize=0
        )
        assert writer.stdout is not None
        with writer:
            for entry in entries(iter(partial(writer.stdout.read, 1 << 15), b"")):
                self.fed += 1
                if not self._inbox.add(HOSTS[0], entry):
                    break
            writer.kill()


def write_journal(lines: int) -> None:
    """Write journalctl's JSON to stdout, `lines` a second in ten pieces."""
    number, due = 0, time.monotonic()
    while True:
        part = []
        for _ in range(lines // 10):
            number += 1
            priority, message = session.LINES[number % len(session.LINES)]
            told = {
                "__CURSOR": f"s=a;i={number};b=c;m={number};t={number};x=1",
                "__REALTIME_TIMESTAMP": str(int(time.time() * 1e6)),
                "MESSAGE": message, "PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "x", "_PID": "42",
            }  # fmt: skip
            part.append(json.dumps(told))
        sys.stdout.write("\n".join(part) + "\n")
        sys.stdout.flush()
        due += 0.1
        time.sleep(max(0.0, due - time.monotonic()))


def silent_host() -> tuple[Host, socket.socket]:
    """Return a host whose SSH port accepts and then says nothing: 30 s until the timeout."""
    listening = socket.create_server(("127.0.0.1", 0))
    target = SshTarget("127.0.0.1", "root", listening.getsockname()[1], None, ())
    host = Host("silent", (), Path("bench.yml"), target, BY_ID["cpu"], 0, "silent", {}, {})
    return host, listening


async def key_to_paint(seconds: float) -> tuple[dict[str, list[float]], float]:
    """Return view → seconds of each key press until the screen was written, and journal lines a second."""
    host, listening = silent_host()
    feed = Busy(LINES_A_SECOND, Live([host], timeout=30.0))
    app = Painted(feed)
    found: dict[str, list[float]] = {}
    begun = time.monotonic()
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause(1.0)
        for view in ("fleet", "host", "journal", "journal, filtered", BETWEEN):
            keys = tuple("123") if view == BETWEEN else KEYS
            if view != BETWEEN:
                app.action_view(view.split(",")[0])
            if "filtered" in view:
                app.journal.filter_by("batch")
            await pilot.pause(0.5)
            stop, turn = time.monotonic() + seconds / 5, 0
            while time.monotonic() < stop:
                found.setdefault(view, []).append(await press(app, keys[turn % len(keys)]))
                turn += 1
                await asyncio.sleep(0.05)
        rate = feed.fed / (time.monotonic() - begun)
    listening.close()
    return found, rate


async def press(app: Painted, key: str) -> float:
    """Press a key; return the seconds until the screen was written after it."""
    before = time.perf_counter()
    app.simulate_key(key)
    while app.painted < before:
        await asyncio.sleep(0)
        if time.perf_counter() - before > 5:
            sys.exit(f"{key} was never painted")
    return app.painted - before


async def cpu(seconds: float, view: str) -> float:
    """Return the share of a core for eight hosts at 1 Hz, less what it takes to make them up."""
    app = Painted(Busy(0))
    async with app.run_test(size=(200, 50)) as pilot:
        app.action_view(view)
        await pilot.pause(2.0)
        before, begun = time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        used, took = time.process_time() - before, time.perf_counter() - begun
    made = time.process_time()
    for name in HOSTS:
        json.dumps(session.document(name, 1.0))
    return used / took - (time.process_time() - made)


async def memory(seconds: float) -> list[tuple[float, float]]:
    """Return (minutes, MiB) while a recording of ten minutes plays at 20 times its speed, over and over."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        recorder = Recorder(path, HOSTS)
        for t in range(600):
            recorder.write(
                [Heard(name, session.BEGUN + t, session.document(name, float(t)), 400.0) for name in HOSTS]
            )
        recorder.close()
        app = Painted(Replay(path, 20.0, forever=True))
        found: list[tuple[float, float]] = []
        async with app.run_test(size=(200, 50)):
            begun = time.monotonic()
            while (since := time.monotonic() - begun) < seconds:
                app.action_view(("fleet", "host")[len(found) % 2])
                found.append((since / 60, resident()))
                await asyncio.sleep(max(2.0, seconds / 40))
        return found


def resident() -> float:
    """Return this process's resident memory in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all stay below."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--replay", type=float, default=180.0)
    parser.add_argument("--write-journal", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_journal:
        write_journal(options.write_journal)
    where = machine()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout
    start.settle()
    presses, rate = asyncio.run(key_to_paint(options.seconds))
    shares = {view: asyncio.run(cpu(options.seconds / 2, view)) for view in ("fleet", "host")}
    seen = asyncio.run(memory(options.replay))
    settled = [mib for _, mib in seen[len(seen) // 3 :]]
    growth = settled[-1] / settled[0] - 1
    kept = [
        all(max(values) < PAINT_LIMIT for values in presses.values()),
        max(shares.values()) < CPU_LIMIT,
        growth < GROWTH_LIMIT,
    ]
    arguments = f"--seconds {options.seconds:g} --replay {options.replay:g}"
    told = ", ".join(f"{view} {share:.1%}" for view, share in shares.items())
    report = f"""\
# The dashboard under load

`scripts/bench_tui.py {arguments}` on {datetime.date.today()}, commit {commit.strip()}:
{where}. Screen 200 × 50, without a terminal (Textual's Pilot).

**Key to paint**: 8 hosts a second, one more whose SSH is silent (timeout 30 s), and {rate:,.0f} journal lines
a second parsed from JSON. Limit {PAINT_LIMIT * 1000:.0f} ms: {words(kept[0])}.

| view | presses | median, ms | 95 %, ms | slowest, ms |
|---|---|---|---|---|
{chr(10).join(row(view, values) for view, values in presses.items())}

**CPU**: 8 hosts at 1 Hz, share of one core: {told}. Limit {CPU_LIMIT:.0%}: {words(kept[1])}.
The decryption of SSH is not in it.

**Memory**: replay of 8 hosts at 20 × for {options.replay / 60:.1f} min ({options.replay / 3:.0f} min of it):
{settled[0]:.1f} MiB after a third, {settled[-1]:.1f} MiB at the end ({growth:+.1%});
at each tenth {", ".join(f"{seen[len(seen) * i // 10][1]:.0f}" for i in range(10))}.
Limit +{GROWTH_LIMIT:.0%}: {words(kept[2])}."""
    print(report)
    sys.exit(0 if all(kept) else 1)


def row(view: str, values: Sequence[float]) -> str:
    """Return a view's row of the table."""
    cells = (statistics.median(values), percentile(values, 0.95), max(values))
    return f"| {view} | {len(values)} | " + " | ".join(f"{cell * 1000:.1f}" for cell in cells) + " |"


def words(kept: bool) -> str:
    """Return whether a limit was kept."""
    return "kept" if kept else "**not kept**"


if __name__ == "__main__":
    main()
