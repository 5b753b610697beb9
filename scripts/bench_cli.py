"""How long kdops's commands take, against the limits it promises: a Markdown report; exit 1 past a limit.

Run by `make bench` (root, Debian): it raises a lab of four hosts of its own and serves the tiny pair on one.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kdops.lab import names

HOSTS = 4


@dataclass(frozen=True)
class Figure:
    """One promise. seconds: one value a run; limit: seconds the slowest of them may take."""

    what: str
    limit: float
    seconds: tuple[float, ...]

    @property
    def kept(self) -> bool:
        return max(self.seconds) < self.limit

    @property
    def row(self) -> str:
        median, slowest = statistics.median(self.seconds), max(self.seconds)
        cells = (self.what, f"{self.limit:g}", f"{median:.2f}", f"{slowest:.2f}", str(len(self.seconds)))
        return f"| {' | '.join(cells)} | {'yes' if self.kept else '**no**'} |"


def kdops(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run one command and return its stdout; a failure ends the benchmark with its words."""
    done = subprocess.run(
        ["kdops", *arguments], capture_output=True, text=True, env={**os.environ, **(env or {})}
    )
    if done.returncode:
        sys.exit(f"kdops {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def times(runs: int, action: Callable[[], object]) -> tuple[float, ...]:
    """Return the wall-clock seconds of each run."""
    found = []
    for _ in range(runs):
        begun = time.perf_counter()
        action()
        found.append(time.perf_counter() - begun)
    return tuple(found)


def config_from_nothing() -> None:
    """`kdops config ct200` without its inventory cache, as after every edit."""
    with tempfile.TemporaryDirectory() as cache:
        kdops("config", "ct200", env={"KDOPS_CACHE": cache})


def deploy(inventory: str, profile: str, *, changes: bool) -> float:
    """Deploy and return the seconds its engine took to get ready; end here if it did not do as told."""
    done = json.loads(kdops("deploy", "lab0", "--profile", profile, "-i", inventory, "--json"))
    if done["changed"] is not changes:
        sys.exit(f"the deploy of {profile} should {'' if changes else 'not '}have changed lab0")
    return float(done["outcome"]["seconds"]["starting"]) if changes else 0.0


def changed_deploys(inventory: str) -> tuple[float, ...]:
    """Deploy two other profiles; seconds of each less those its engine took from start to ready."""
    found = []
    for profile in ("linear", "autoregressive"):
        begun = time.perf_counter()
        starting = deploy(inventory, profile, changes=True)
        found.append(time.perf_counter() - begun - starting)
    return tuple(found)


def measure(inventory: str) -> list[Figure]:
    """Measure everything promised; lab0 serves afterwards."""
    here = ("-i", inventory)
    deploy(inventory, "ddtree", changes=True)
    return [
        Figure("`kdops --help`", 0.25, times(20, lambda: kdops("--help"))),
        Figure("`kdops config ct200`, inventory unread", 1.5, times(10, config_from_nothing)),
        Figure("`kdops config ct200`, inventory known", 1.5, times(10, lambda: kdops("config", "ct200"))),
        Figure(f"`kdops status`, {HOSTS} hosts", 1.5, times(10, lambda: kdops("status", *here))),
        Figure("`kdops check ct200 --offline`", 3, times(10, lambda: kdops("check", "ct200", "--offline"))),
        Figure("`kdops check lab0`", 15, times(5, lambda: kdops("check", "lab0", *here))),
        Figure(
            "`kdops deploy lab0`, nothing changed",
            15,
            times(5, lambda: deploy(inventory, "ddtree", changes=False)),
        ),
        Figure("`kdops deploy lab0`, changed, less the engine's start", 40, changed_deploys(inventory)),
    ]


def machine() -> str:
    """Return CPU, cores, memory and load of this machine."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown CPU",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, load before {os.getloadavg()[0]:.1f}"


def main() -> None:
    """Raise the lab, measure, take it down, report."""
    where = machine()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True).stdout
    os.environ["KDOPS_LAB"] = "bench"
    lab = names.current()
    kdops("lab", "up", str(HOSTS))
    try:
        figures = measure(str(lab.inventory))
    finally:
        kdops("lab", "down")
    print("# Command times\n")
    print(f"`make bench` on {datetime.date.today()}, commit {commit.strip() or 'unknown'}: {where}.")
    print("Hosts are lab hosts on the same machine; the engine is SGLang on its CPU with the tiny pair.\n")
    print("| command | limit, s | median, s | slowest, s | runs | kept |\n|---|---|---|---|---|---|")
    print("\n".join(figure.row for figure in figures))
    sys.exit(0 if all(figure.kept for figure in figures) else 1)


if __name__ == "__main__":
    main()
