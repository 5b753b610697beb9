"""Can the GPUs of this host talk to one another? A short all-reduce, before a load of minutes finds out.

`python -m kdtree_engine.collective --gpus 8`. The driver's topology tool may say that peer-to-peer works
while every all-reduce hangs (PCIe boards behind some switches). So: real processes, one a GPU, sums that are
checked, a deadline; and where that fails the same again without peer-to-peer, which is the remedy. Needs
torch and nothing else of this package: kdops sends this file alone to a host.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 60.0
"""For importing torch and initialising CUDA in every process, before the clock of the test runs."""

SMALL, LARGE = 16 * 1024, 64 * 1024**2
_ROUNDS = 20
_P2P_OFF = "NCCL_P2P_DISABLE"


@dataclass(frozen=True)
class Attempt:
    """One run. ok: every rank summed right in time. small_us, large_us: microseconds of an all-reduce of
    SMALL and LARGE bytes, the slowest rank's. why: what went wrong.
    """

    ok: bool
    small_us: float = 0.0
    large_us: float = 0.0
    why: str = ""

    def bandwidth(self, ranks: int) -> float:
        """Return the bus bandwidth in bytes/s: 2 (n - 1) / n × bytes ÷ time, as nccl-tests counts it."""
        return 2 * (ranks - 1) / ranks * LARGE / (self.large_us / 1e6)


def rank_main(rank: int, world: int, folder: Path, backend: str) -> None:
    """Be one rank; writes `ready-RANK`, then `done-RANK` with its times."""
    import torch
    import torch.distributed as dist

    device = torch.device(f"cuda:{rank}" if backend == "nccl" else "cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.ones(1, device=device)
    (folder / f"ready-{rank}").touch()
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=world)
    expected = world * (world + 1) / 2
    times = []
    for size in (SMALL, LARGE):
        tensor = torch.empty(size // 4, device=device)
        for turn in range(_ROUNDS):
            if turn == 3:  # the first ones open connections
                _wait(torch, device)
                begun = time.perf_counter()
            tensor.fill_(rank + 1)
            dist.all_reduce(tensor)
        _wait(torch, device)
        times.append((time.perf_counter() - begun) / (_ROUNDS - 3) * 1e6)
        if not bool((tensor == expected).all()):
            raise ArithmeticError(f"rank {rank}: the sum of {size} bytes is wrong")
    partial = folder / f"partial-{rank}"
    partial.write_text(json.dumps(times))
    partial.rename(folder / f"done-{rank}")
    os._exit(0)  # a teardown that hangs is not the question


def _wait(torch: Any, device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def attempt(
    world: int, seconds: float, backend: str, environment: Mapping[str, str], start: float = START_S
) -> Attempt:
    """Run all ranks; seconds: how long they may take once all are ready."""
    with tempfile.TemporaryDirectory(prefix="kdtree-collective.") as name:
        folder = Path(name)
        words = [sys.executable, "-B", str(Path(__file__).absolute()), "--backend", backend]
        processes = [
            subprocess.Popen(
                [*words, "--rank", str(rank), "--gpus", str(world), "--folder", name],
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=(folder / f"error-{rank}").open("wb"),
            )
            for rank in range(world)
        ]
        try:
            if why := _until(folder, "ready", processes, start):
                return Attempt(False, why=f"{why} before the test began")
            if why := _until(folder, "done", processes, seconds):
                return Attempt(False, why=why)
            times = [json.loads((folder / f"done-{rank}").read_text()) for rank in range(world)]
            return Attempt(True, max(t[0] for t in times), max(t[1] for t in times))
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _until(folder: Path, mark: str, processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> str:
    """Wait for the mark of every rank; return why it did not come, "" if it did."""
    deadline = time.monotonic() + seconds
    while missing := [r for r in range(len(processes)) if not (folder / f"{mark}-{r}").exists()]:
        for rank in missing:
            if processes[rank].poll() not in (None, 0):
                said = (folder / f"error-{rank}").read_text(errors="replace")
                return f"rank {rank} failed: {last_error(said)}"
        if time.monotonic() > deadline:
            return f"ranks {', '.join(map(str, missing))} did not end within {seconds:g} s"
        time.sleep(0.02)
    return ""


def last_error(text: str) -> str:
    """Return the exception's own line: torch writes hints behind it."""
    lines = text.strip().splitlines()
    errors = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(?:Error|Exception)\b", line)]
    return (errors or lines or ["no word"])[-1][:300]


def judge(world: int, first: Attempt, second: Attempt | None, *, p2p_off: bool) -> dict[str, Any]:
    """Return {ok, slow, words, remedy}. second: the run without peer-to-peer, made when the first failed."""
    if first.ok:
        words = f"{world} ranks agree: {_speed(world, first)}"
        if not p2p_off:
            return {"ok": True, "slow": False, "words": words, "remedy": ""}
        remedy = f"remove {_P2P_OFF} from engine_environment if peer-to-peer works here"
        words += ", peer-to-peer is off: the slower path"
        return {"ok": True, "slow": True, "words": words, "remedy": remedy}
    if second is not None and second.ok:
        words = f"all-reduce with peer-to-peer fails: {first.why}; without it: {_speed(world, second)}"
        remedy = f'set {_P2P_OFF}: "1" in engine_environment (slower), and look at IOMMU and ACS of the host'
        return {"ok": False, "slow": True, "words": words, "remedy": remedy}
    words = f"all-reduce fails: {first.why}" + (f"; without peer-to-peer: {second.why}" if second else "")
    remedy = "look at `dmesg` for Xid errors and at `nvidia-smi topo -m`; NCCL_DEBUG=INFO tells more"
    return {"ok": False, "slow": False, "words": words, "remedy": remedy}


def _speed(world: int, seen: Attempt) -> str:
    return (
        f"{SMALL // 1024} KiB in {seen.small_us:.0f} µs, "
        f"{LARGE // 1024**2} MiB in {seen.large_us / 1000:.2f} ms "
        f"({seen.bandwidth(world) / 1e9:.1f} GB/s bus)"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the test; exit status 0 if the ranks agree, 1 if not."""
    words = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="kdtree_engine.collective", description=words)
    parser.add_argument("--gpus", type=int, default=2, help="ranks, one a GPU")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the test once every rank is ready")
    parser.add_argument("--backend", choices=("nccl", "gloo"), default="nccl", help="gloo: on the CPU")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of words")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.gpus < 2 or not asked.seconds > 0:
        parser.error("--gpus must be 2 or more, --seconds more than 0")
    if asked.rank is not None:
        rank_main(asked.rank, asked.gpus, asked.folder, asked.backend)
    off = os.environ.get(_P2P_OFF) == "1"
    first = attempt(asked.gpus, asked.seconds, asked.backend, {})
    again = not first.ok and not off and asked.backend == "nccl"
    second = attempt(asked.gpus, asked.seconds, asked.backend, {_P2P_OFF: "1"}) if again else None
    told = judge(asked.gpus, first, second, p2p_off=off)
    print(json.dumps(told) if asked.json else "\n".join(filter(None, (told["words"], told["remedy"]))))
    return 0 if told["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
