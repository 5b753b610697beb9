"""The main job on a real systemd host: deploy, watch, switch, roll back, and the numbers of each arm.

Run by `make demo`. Every step is a kdops command, printed before it runs; nothing here is simulated.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from kdops import paths

PROMPTS = Path(__file__).parent.parent / "models" / "tiny-pair" / "prompts.json"
NEW_TOKENS = 96


@dataclass(frozen=True)
class Arm:
    """What one profile did: tokens/s and acceptance length (AL), averaged over the prompts."""

    title: str
    tokens_per_second: float
    acceptance_length: float | None


def kdops(*args: str) -> None:
    """Show and run one command; its failure ends the demo with its exit code."""
    print(f"\n$ {shlex.join(['kdops', *args])}", flush=True)
    code = subprocess.run(["kdops", *args]).returncode
    if code:
        sys.exit(code)


def measure(title: str) -> Arm:
    """Send one held-out prompt of each kind to the serving engine, greedy, one at a time."""
    kinds = json.loads(PROMPTS.read_text())["test"]
    rates, lengths = [], []
    for kind, prompts in kinds.items():
        out = subprocess.run(
            ["kdops", "generate", "lab", prompts[1]["text"], "--max-new-tokens", str(NEW_TOKENS), "--json"],
            check=True,
            capture_output=True,
            text=True,
        )
        answer = json.loads(out.stdout)
        rates.append(answer["tokens_per_second"])
        if answer["acceptance_length"] is not None:
            lengths.append(answer["acceptance_length"])
        al = f"AL {lengths[-1]:.2f}" if lengths else "AL -"
        print(f"  {title:<22} {kind:<12} {rates[-1]:7.1f} tok/s   {al}", flush=True)
    return Arm(title, sum(rates) / len(rates), sum(lengths) / len(lengths) if lengths else None)


def main() -> None:
    """Run the demo from nothing to the table of arms."""
    started = time.monotonic()
    kdops("lab", "up", "1")
    kdops("deploy", "lab", "--why", "demo")
    arms = [measure("ddtree")]
    kdops("status", "lab")
    kdops("logs", "lab", "-n", "8")
    kdops("deploy", "lab", "--profile", "linear", "--why", "demo: the linear arm")
    arms.append(measure("linear"))
    kdops("rollback", "lab", "--why", "demo: back to ddtree")
    arms.append(measure("ddtree, rolled back"))
    kdops("history", "lab")

    print(f"\n{'arm':<22} {'tok/s':>8} {'AL':>6}   (4 prompts of {NEW_TOKENS} tokens, one start: no verdict)")
    for arm in arms:
        length = f"{arm.acceptance_length:.2f}" if arm.acceptance_length is not None else "-"
        print(f"{arm.title:<22} {arm.tokens_per_second:>8.1f} {length:>6}")
    print("On two CPU cores each tree row takes time, so a tree's AL rises and its tokens/s need not;")
    print("docs/engine.md has what it does on GPUs.")
    size = subprocess.run(["du", "-sh", paths.cache()], capture_output=True, text=True).stdout.split()[0]
    lab = os.environ.get("KDOPS_LAB")
    print("\nThe host still runs: try kdops status lab, kdops logs lab -f; kdops lab down ends it. For that:")
    print(f"  export PATH={Path(sys.executable).parent}:$PATH" + (f" KDOPS_LAB={lab}" if lab else ""))
    print(f"{time.monotonic() - started:.0f} s. Kept: {paths.cache()} ({size}); make clean removes it.")


if __name__ == "__main__":
    main()
