"""Token equality on a GPU, fp32: {plain, DFLASH, DDTREE 8/16/32} x {eager, graphs} x page x context x
concurrency, against plain decoding with graphs and page 1; and step times.

    python engine/benchmarks/equality.py RESULTS.json --equal graphs/1 eager/64 --steps

Resumable: cells that RESULTS.json holds are not run again; the tokens of plain decoding lie in
RESULTS.tokens.json. All servers of a call start at once and share the card; step times (bf16, SGLang's
own kernels) come last, one server at a time, the others idle. Run it where SGLang 0.5.23, torch and a GPU
are; of this repository it needs engine/ and models/tiny-pair only.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import functools
import itertools
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_servers import AUTOREGRESSIVE, CHAIN, LINEAR, PAIR, Server, Setup, ddtree, serving
from transformers import AutoTokenizer

ARMS = (AUTOREGRESSIVE, LINEAR, ddtree(8), ddtree(16), ddtree(32))
TIMED = (LINEAR, CHAIN, ddtree(16), ddtree(32), AUTOREGRESSIVE)
REFERENCE = (AUTOREGRESSIVE, Setup(graphs=True, page=1))
CONTEXTS, CONCURRENCIES, TOKENS, REQUESTS = (100, 4000), (1, 8), 96, 8
STEP_TOKENS, STEP_RUNS = 512, 5
CELLS = tuple(itertools.product(CONTEXTS, CONCURRENCIES))


@functools.cache
def prompts(context: int) -> list[list[int]]:
    """REQUESTS prompts of `context` tokens each, from the test texts of all kinds."""
    tokenizer = AutoTokenizer.from_pretrained(PAIR / "target")
    texts = list(json.loads((PAIR / "prompts.json").read_text())["test"].values())
    made = []
    for number in range(REQUESTS):
        kind = texts[number % len(texts)]
        ids: list[int] = []
        for prompt in itertools.islice(itertools.cycle(kind), number * 5, None):
            ids += tokenizer(prompt["text"])["input_ids"]
            if len(ids) >= context:
                break
        made.append(ids[:context])
    return made


def answers(server: Server, context: int, concurrency: int) -> list[dict[str, Any]]:
    """All prompts of a cell, `concurrency` at a time."""
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda ids: server.generate(ids, TOKENS), prompts(context)))


def compare(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, Any]:
    """equal; the requests that differ and where first; acceptance length."""
    differing = {}
    for number, (left, right) in enumerate(zip(expected, found, strict=True)):
        pairs = enumerate(zip(left["output_ids"], right["output_ids"], strict=True))
        place = next((index for index, (a, b) in pairs if a != b), None)
        if place is not None:
            differing[number] = place
    metas = [answer["meta_info"] for answer in found]
    steps = sum(meta.get("spec_verify_ct", 0) for meta in metas)
    accepted = sum(meta.get("spec_num_correct_drafts", 0) for meta in metas)
    length = round(1 + accepted / steps, 3) if steps else None
    return {"equal": not differing, "differing": differing, "acceptance_length": length}


def step_time(server: Server) -> dict[str, Any]:
    """Milliseconds per verify step (per token without speculation) at batch 1, the median of STEP_RUNS
    runs.
    """
    ids = prompts(CONTEXTS[0])[1]
    server.generate(ids, STEP_TOKENS)
    times, steps = [], STEP_TOKENS
    for _ in range(STEP_RUNS):
        meta = server.generate(ids, STEP_TOKENS)["meta_info"]
        steps = meta.get("spec_verify_ct") or STEP_TOKENS
        times.append(1000 * meta["e2e_latency"] / steps)
    median = statistics.median(times)
    return {
        "step_ms": round(median, 3),
        "runs_ms": [round(value, 3) for value in times],
        "steps": steps,
        "tokens_per_second": round(STEP_TOKENS / median / steps * 1000, 1),
    }


class Results:
    """The results file, rewritten after every cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def put(self, name: str, value: dict[str, Any]) -> None:
        self.cells[name] = value
        self._path.write_text(json.dumps(self.cells, indent=1) + "\n")
        print(name, {key: value[key] for key in value if key != "runs_ms"}, flush=True)


def run_equal(results: Results, tokens: Path, servers: Sequence[Server]) -> None:
    """Every cell of these servers; plain decoding with graphs and page 1 is the reference."""
    known: dict[str, list[dict[str, Any]]] = json.loads(tokens.read_text()) if tokens.exists() else {}
    for context, concurrency in CELLS:
        prompts(context)  # once, before the threads below
        with concurrent.futures.ThreadPoolExecutor(max(1, len(servers))) as pool:
            repeated = itertools.repeat(context), itertools.repeat(concurrency)
            found = list(pool.map(answers, servers, *repeated))
        cell = f"context{context}/concurrency{concurrency}"
        for server, answer in zip(servers, found, strict=True):
            if (server.arm, server.setup) == REFERENCE:
                known[cell] = [{"output_ids": one["output_ids"]} for one in answer]
                tokens.write_text(json.dumps(known) + "\n")
        for server, answer in zip(servers, found, strict=True):
            if cell in known:
                results.put(f"{server.arm.name}/{server.setup}/{cell}", compare(known[cell], answer))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", type=Path)
    parser.add_argument("--equal", nargs="*", default=[], help="graphs/PAGE or eager/PAGE")
    parser.add_argument("--arms", nargs="*", help="names of arms, default all")
    parser.add_argument("--steps", action="store_true", help="step times too")
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs")
    parser.add_argument("--commit", default="", help="noted in the results")
    asked = parser.parse_args(arguments)
    results = Results(asked.results)
    results.put("about", {"commit": asked.commit, "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}"})
    setups = [Setup(mode == "graphs", int(page)) for mode, page in (name.split("/") for name in asked.equal)]
    wanted = [
        (arm, setup)
        for arm, setup in itertools.product(ARMS, setups)
        if (asked.arms is None or arm.name in asked.arms)
        and any(f"{arm.name}/{setup}/context{c}/concurrency{n}" not in results.cells for c, n in CELLS)
    ]
    if asked.steps:
        stock = Setup(graphs=True, page=1, exact=False)
        wanted += [(arm, stock) for arm in TIMED if f"{arm.name}/{stock}/step" not in results.cells]
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with serving(wanted, folder) as servers:
            run_equal(
                results, asked.results.with_suffix(".tokens.json"), [s for s in servers if s.setup.exact]
            )
            for server in servers:
                if not server.setup.exact:
                    results.put(f"{server.arm.name}/{server.setup}/step", step_time(server))
    wrong = [name for name, cell in results.cells.items() if cell.get("equal") is False]
    print(f"{sum('equal' in cell for cell in results.cells.values())} cells, differing: {wrong or 'none'}")
    return 1 if wrong or len(servers) < len(wanted) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
