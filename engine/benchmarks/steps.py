"""Step times on a GPU at batch 1 and 8, alone on the card: stock DFLASH against DDTREE, CUDA graphs, bf16.

    python engine/benchmarks/steps.py RESULTS.json --models tiny 8b --sets

tiny: the trained pair. 8b: random weights in the shape of Qwen3-8B with a drafter of 5 layers and block 8,
where verification has its real cost. mla: Kimi K2's attention in four layers, for long contexts. --sets adds
acceptance length and tokens/s for each kind of text with the trained pair. The servers of a model start
together and are then timed in turns, the others stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import math
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dummy_model import write_dense, write_latent
from equality import Results, prompts
from gpu_servers import PAIR, Server, Setup, arms, serving, stop_in_time
from profiled import profile
from transformers import AutoTokenizer

TIMED = ("dflash", "ddtree-chain", "ddtree-16", "ddtree-32", "autoregressive")
CONTEXT, PROFILED = 100, 3  # profiles: their context, and how many of the arms
SET_PROMPTS, SET_TOKENS = 4, 256


def _run(server: Server, asked: Sequence[list[int]], length: int) -> tuple[float, float]:
    """Seconds that these requests take at once, and the steps of the one that has most."""
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        found = list(pool.map(lambda ids: server.generate(ids, length)["meta_info"], asked))
    took = time.perf_counter() - began
    return took, max(meta.get("spec_verify_ct") or length - 1 for meta in found)


@contextlib.contextmanager
def alone(server: Server, servers: Sequence[Server]) -> Iterator[None]:
    """All others stand still."""
    others = [other for other in servers if other is not server]
    for other in others:
        other.pause()
    try:
        yield
    finally:
        for other in others:
            other.resume()


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
    tokenizer = AutoTokenizer.from_pretrained(PAIR / "target")
    found = {}
    for kind, texts in json.loads((PAIR / "prompts.json").read_text())["test"].items():
        accepted = steps = 0
        took = 0.0
        for prompt in texts[:SET_PROMPTS]:
            ids = tokenizer(prompt["text"])["input_ids"]
            server.generate(ids, 1)  # the prefix is cached from here on
            meta = server.generate(ids, SET_TOKENS)["meta_info"]
            steps += meta.get("spec_verify_ct", 0)
            accepted += meta.get("spec_num_correct_drafts", 0)
            took += meta["e2e_latency"]
        length = round(1 + accepted / steps, 3) if steps else 1.0
        found[kind] = {
            "acceptance_length": length,
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


def setup_of(model: str, folder: Path, tp: int, attention: str) -> Setup:
    """How the servers of a model run. attention: stock or kdtree, for verification."""
    own = Setup(exact=False, batches=(1, 8), tp=tp, environment=(("KDTREE_VERIFY_ATTENTION", attention),))
    if model == "tiny":
        return own
    write = write_latent if model == "mla" else write_dense
    target, drafter = write(folder / model, PAIR)
    extra = ["--load-format=dummy", "--max-total-tokens=36864"]
    if model == "mla":
        extra = [
            "--load-format=dummy",
            "--max-total-tokens=200000",
            "--context-length=195000",
            "--speculative-draft-window-size=2048",
            "--chunked-prefill-size=8192",
        ]
    return replace(own, target=target, drafter=drafter, extra=tuple(extra))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", type=Path)
    parser.add_argument("--models", nargs="*", default=["tiny"], choices=["tiny", "8b", "mla"])
    parser.add_argument("--attention", default="stock", choices=["stock", "kdtree"])
    parser.add_argument("--arms", nargs="*", default=list(TIMED))
    parser.add_argument("--cells", nargs="*", default=["100/1", "4000/1", "100/8"], help="CONTEXT/BATCH")
    parser.add_argument("--tokens", type=int, default=384)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sets", action="store_true", help="acceptance length and tokens/s by kind of text")
    parser.add_argument("--profile", action="store_true", help="kernels, collectives and launches of a step")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--after", type=Path, help="start servers now, measure once this file exists")
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs")
    parser.add_argument("--commit", default="", help="noted in the results")
    parser.add_argument("--deadline", type=float, default=math.inf, help="stop before this time (time.time)")
    asked = parser.parse_args(arguments)
    if math.isfinite(asked.deadline):
        stop_in_time(asked.deadline)
    results = Results(asked.results)
    results.put("about", {"commit": asked.commit, "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}"})
    cells = [(int(context), int(batch)) for context, batch in (name.split("/") for name in asked.cells)]
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for model in asked.models:
            named = model if asked.attention == "stock" else f"{model}-{asked.attention}"
            setup = setup_of(model, folder, asked.tp, asked.attention)
            wanted = [(arm, setup) for arm in arms(asked.arms)]
            try:
                with serving(wanted, folder) as servers:
                    failed += len(wanted) - len(servers)
                    while asked.after is not None and not asked.after.exists():
                        time.sleep(0.2)
                    measure(results, servers, named, cells, tokens=asked.tokens, runs=asked.runs)
                    if asked.sets and model == "tiny":
                        for server in servers:
                            with alone(server, servers):
                                results.put(f"sets/{server.arm.name}", kinds_of_text(server))
                    if asked.profile:
                        for server in servers[:PROFILED]:
                            with alone(server, servers):
                                parts = profile(server, prompts(CONTEXT)[1], 64, folder / server.log.stem)
                            results.put(f"{named}/{server.arm.name}/{server.setup}/profile", {"ranks": parts})
            except Exception:  # one model's failure must not cost the other
                traceback.print_exc()
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
