"""Step times on a GPU at batch 1 and 8, alone on the card: stock DFLASH against DDTREE, CUDA graphs, bf16.

    python engine/benchmarks/steps.py RESULTS.json --models tiny 8b --sets

tiny: the trained pair. 8b: random weights in the shape of Qwen3-8B with a drafter of 5 layers and block 8,
where verification has its real cost. mla: DeepSeek-V3's attention in four layers, for long contexts. --sets
adds acceptance length and tokens/s for each kind of text with the trained pair. The servers of a model start
together and are then timed in turns, the others stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dummy_model import write_dense, write_latent
from profiled import profile
from runs import Results, options, planned, prompts, running, speculation, tokenizer
from servers import PAIR, Server, Setup, Wave, alone, arms, serving

TIMED = ("dflash", "ddtree-chain", "ddtree-16", "ddtree-32", "autoregressive")
MODELS, CELLS = ("tiny", "8b", "mla"), ("100/1", "4000/1", "100/8")
CONTEXT, PROFILED = 100, 3  # profiles: their context, and how many of the arms
SET_PROMPTS, SET_TOKENS = 4, 256
DUMMY = {"load-format": "dummy", "max-total-tokens": 16384}
LATENT = DUMMY | {
    "max-total-tokens": 200_000,
    "context-length": 195_000,
    "speculative-draft-window-size": 2048,
    "chunked-prefill-size": 8192,
    "disable-shared-experts-fusion": True,
}


def _run(server: Server, asked: Sequence[list[int]], length: int) -> tuple[float, float]:
    """Seconds that these requests take at once, and the steps of the one that has most."""
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        found = list(pool.map(lambda ids: server.generate(ids, length)["meta_info"], asked))
    took = time.perf_counter() - began
    return took, max(meta.get("spec_verify_ct") or length - 1 for meta in found)


def time_steps(
    servers: Sequence[Server], context: int, batch: int, tokens: int, runs: int
) -> list[dict[str, Any]]:
    """For each server, milliseconds of a verify step (of a token without speculation), the median of `runs`.

    A run is `batch` requests of `tokens` and of a quarter of that; the difference of the two excludes
    prefill. The servers take turns, so that a slow minute of the machine falls on all of them.
    """
    asked = prompts(context)[:batch] if batch > 1 else [prompts(context)[1]]
    taken: list[list[float]] = [[] for _ in servers]
    rates = [0.0] * len(servers)
    for turn in range(runs + 1):
        for number, server in enumerate(servers):
            with alone(server, servers):
                took, steps = _run(server, asked, tokens)
                if turn == 0:  # warms up
                    continue
                short_took, short_steps = _run(server, asked, tokens // 4)
            taken[number].append(1000 * (took - short_took) / (steps - short_steps))
            rates[number] = max(rates[number], batch * tokens / took)
    return [
        {
            "step_ms": round(statistics.median(times), 4),
            "runs_ms": [round(value, 4) for value in times],
            "tokens_per_second": round(rate, 1),
        }
        for times, rate in zip(taken, rates, strict=True)
    ]


def kinds_of_text(server: Server) -> dict[str, Any]:
    """Acceptance length and decoded tokens/s, by kind of text, one request at a time."""
    encode = tokenizer()
    found = {}
    for kind, texts in json.loads((PAIR / "prompts.json").read_text())["test"].items():
        metas = []
        for prompt in texts[:SET_PROMPTS]:
            ids = encode(prompt["text"])["input_ids"]
            server.generate(ids, 1)  # the prefix is cached from here on
            metas.append(server.generate(ids, SET_TOKENS)["meta_info"])
        took = sum(meta["e2e_latency"] for meta in metas)
        found[kind] = {
            "acceptance_length": speculation(metas)["acceptance_length"] or 1.0,
            "tokens_per_second": round(SET_PROMPTS * SET_TOKENS / took, 1),
        }
    return found


def measure(
    results: Results, servers: Sequence[Server], model: str, cells: Sequence[tuple[int, int]], **how: int
) -> None:
    """Every cell of every server, and the median of its runs' ratios to the first server's."""
    for context, batch in cells:
        names = [
            f"{model}/{server.arm.name}/{server.setup}/context{context}/batch{batch}" for server in servers
        ]
        timed = time_steps(servers, context, batch, **how)
        for name, cell in zip(names, timed, strict=True):
            ratios = [own / first for own, first in zip(cell["runs_ms"], timed[0]["runs_ms"], strict=True)]
            results.put(name, {**cell, "of_first": round(statistics.median(ratios), 4)})


def wave_of(model: str, folder: Path, asked: argparse.Namespace) -> Wave:
    """The servers of a model; its folders are written where it has none."""
    how: dict[str, Any] = {
        "exact": False,
        "batches": (1, 8),
        "tp": asked.tp,
        "device": asked.device,
        "environment": (("KDTREE_VERIFY_ATTENTION", asked.attention),),
    }
    if model != "tiny":
        write, extra = (write_latent, LATENT) if model == "mla" else (write_dense, DUMMY)
        how["target"], how["drafter"] = write(folder / model)
        how["extra"] = tuple(extra.items())
    return [(arm, Setup(**how)) for arm in arms(asked.arms)]


def run_model(results: Results, model: str, folder: Path, asked: argparse.Namespace) -> int:
    """All that was asked for with one model; how many servers did not come up."""
    named = model if asked.attention == "stock" else f"{model}-{asked.attention}"
    wanted = wave_of(model, folder, asked)
    with serving(wanted, folder, asked.after) as servers:
        measure(results, servers, named, asked.cells, tokens=asked.tokens, runs=asked.runs)
        for number, server in enumerate(servers):
            with alone(server, servers):
                if asked.sets and model == "tiny":
                    results.put(f"sets/{server.arm.name}", kinds_of_text(server))
                if asked.profile and number < PROFILED:
                    parts = profile(server, prompts(CONTEXT)[1], 64, folder / server.log.stem)
                    results.put(f"{named}/{server.arm.name}/{server.setup}/profile", {"ranks": parts})
        return len(wanted) - len(servers)


def main(arguments: Sequence[str]) -> int:
    parser = options(__doc__, arms=TIMED, cells=CELLS)
    parser.add_argument("--models", nargs="+", default=["tiny"], choices=MODELS)
    parser.add_argument("--attention", default="stock", choices=["stock", "kdtree"])
    parser.add_argument("--tokens", type=int, default=384)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sets", action="store_true", help="acceptance length and tokens/s by kind of text")
    parser.add_argument("--profile", action="store_true", help="kernels, collectives and launches of a step")
    asked = parser.parse_args(arguments)
    if asked.plan:
        with tempfile.TemporaryDirectory() as temporary:
            return planned([wave_of(model, Path(temporary), asked) for model in asked.models])
    failed = 0
    with running(asked) as (results, folder):
        for model in asked.models:
            try:
                failed += run_model(results, model, folder, asked)
            except Exception:  # one model's failure must not cost the other
                traceback.print_exc()
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
