"""Step time of DFLASH on an MLA model with dummy weights, stock attention against ours, by context.

    python engine/benchmarks/mla_steps.py RESULTS.json [--contexts 8192 65536 180000]

DeepSeek-V3's shape with few layers and one GPU's heads (dummy_model.py). SGLANG_SIMULATE_ACC_LEN fixes
the commit length. A step time is the difference of two generation lengths over the same prompt, whose
prefix is cached, so prefill cancels. GPU busy is NVML's share of time in which a kernel ran.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dummy_model import BLOCK, LAYERS, VOCABULARY, write_latent
from runs import options, planned, running
from servers import Arm, Server, Setup, Wave, serving

COMMIT, RUNS = 4, 3
FLAGS = (
    ("load-format", "dummy"),
    ("max-total-tokens", 270_000),
    ("max-running-requests", 2),
    ("context-length", 200_000),
    ("chunked-prefill-size", 16_384),
    ("disable-shared-experts-fusion", True),
)
DRAFT = (("speculative-dflash-block-size", BLOCK), ("speculative-draft-window-size", 2048))
ARMS = ("dflash-stock", "dflash-kdtree", "plain-stock", "plain-kdtree")


def wave(names: Sequence[str], folder: Path, **how: Any) -> Wave:
    """Arm and set-up of each name: the algorithm, then the attention."""
    target, drafter = write_latent(folder / "models")
    made = []
    for name in names:
        algorithm, attention = name.split("-")
        speculative = algorithm == "dflash"
        arm = Arm(name, "DFLASH" if speculative else None, DRAFT if speculative else ())
        environment = [("KDTREE_VERIFY_ATTENTION", attention)]
        if speculative:
            environment.append(("SGLANG_SIMULATE_ACC_LEN", str(COMMIT)))
        setup = Setup(
            **how, exact=False, batches=(1,), target=target, drafter=drafter, extra=FLAGS,
            environment=tuple(environment),
        )  # fmt: skip
        made.append((arm, setup))
    return made


def steps_and_seconds(server: Server, ids: Sequence[int], steps: int) -> tuple[int, float]:
    tokens = steps * COMMIT if server.arm.algorithm else steps
    meta = server.generate(ids, tokens)["meta_info"]
    return meta.get("spec_verify_ct") or tokens, meta["e2e_latency"]


def busy_percent(server: Server, ids: Sequence[int], steps: int) -> float:
    """Median of NVML's utilisation, sampled while one generation runs."""
    query = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
    sampler = subprocess.Popen([*query, "-i", gpu_index()], stdout=subprocess.PIPE, text=True)
    steps_and_seconds(server, ids, steps)
    sampler.terminate()
    samples = [float(line) for line in sampler.communicate()[0].split() if line.isdigit()]
    return statistics.median(samples[2:-1] or samples or [float("nan")])


def gpu_index() -> str:
    return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]


def measure(server: Server, ids: Sequence[int]) -> dict[str, Any]:
    """Median step milliseconds over RUNS pairs of a short and a long generation."""
    steps_and_seconds(server, ids, 8)  # fills the prefix cache
    first = min((steps_and_seconds(server, ids, 8) for _ in range(2)), key=lambda one: one[1])
    guess = max(first[1] / first[0], 1e-3)
    long = int(min(400, max(24, 1.5 / guess)))
    times = []
    for _ in range(RUNS):
        short, more = steps_and_seconds(server, ids, 8), steps_and_seconds(server, ids, long)
        times.append(1e3 * (more[1] - short[1]) / (more[0] - short[0]))
    return {
        "step_ms": round(statistics.median(times), 3),
        "runs_ms": [round(value, 3) for value in times],
        "steps": long,
        "gpu_busy_percent": busy_percent(server, ids, max(long, int(2.5 / guess))),
    }


def slope(steps: dict[int, float]) -> float:
    """Milliseconds per 1,000 tokens per layer between the shortest and the longest context."""
    low, high = min(steps), max(steps)
    return round((steps[high] - steps[low]) / max(high - low, 1) * 1000 / LAYERS, 5)


def main(arguments: Sequence[str]) -> int:
    parser = options(__doc__)
    parser.add_argument("--contexts", nargs="+", type=int, default=[8192, 65536, 180_000])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    asked = parser.parse_args(arguments)
    how = {"tp": asked.tp, "device": asked.device}
    if asked.plan:
        with tempfile.TemporaryDirectory() as temporary:
            return planned([wave(asked.arms, Path(temporary), **how)])
    draw = random.Random(1)
    ids = [draw.randrange(4, VOCABULARY) for _ in range(max(asked.contexts))]
    times: dict[str, dict[int, float]] = {}
    with (
        running(asked) as (results, folder),
        serving(wave(asked.arms, folder, **how), folder, asked.after) as up,
    ):
        for context in asked.contexts:
            for server in up:
                steps_and_seconds(server, ids[:context], 1)
            for server in up:
                name, found = server.arm.name, measure(server, ids[:context])
                results.put(name, results.cells.get(name, {}) | {str(context): found})
                times.setdefault(name, {})[context] = found["step_ms"]
                slopes = {arm: slope(steps) for arm, steps in times.items()}
                results.put("slope_ms_per_1000_tokens_per_layer", slopes)
        results.put("model", {"layers": LAYERS, "commit_length": COMMIT})
    return 0 if len(up) == len(asked.arms) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
