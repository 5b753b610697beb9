"""Token equality on a GPU, fp32: {plain, DFLASH, DDTREE 8/16/32} x {eager, graphs} x page x context x
concurrency, against plain decoding with graphs and page 1.

    python engine/benchmarks/equality.py RESULTS.json --setups graphs/1+eager/1 graphs/64+eager/64 --draws

Resumable: cells that RESULTS.json holds are not run again; the tokens of plain decoding lie in
RESULTS.tokens.json. Set-ups joined by + share the card, and the servers of the next ones start meanwhile.
Run it where SGLang 0.5.23, torch and a GPU are; of this repository it needs engine/ and models/tiny-pair.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import functools
import itertools
import json
import math
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import draws
from gpu_servers import AUTOREGRESSIVE, PAIR, Server, Setup, arms, stop_in_time, waves
from transformers import AutoTokenizer

COMPARED = ("autoregressive", "dflash", "ddtree-8", "ddtree-16", "ddtree-32")
CONTEXTS, CONCURRENCIES, TOKENS, REQUESTS = (100, 4000), (1, 8), 96, 8
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


def margin(server: Server, ids: list[int]) -> float:
    """How far apart the two best tokens after `ids` are, in log-probability."""
    body = {"return_logprob": True, "top_logprobs_num": 2}
    (best, second) = server.generate(ids, 1, body=body)["meta_info"]["output_top_logprobs"][0][:2]
    return round(float(best[0] - second[0]), 6)


class Results:
    """The results file, rewritten after every cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def put(self, name: str, value: dict[str, Any]) -> None:
        self.cells[name] = value
        self._path.write_text(json.dumps(self.cells, indent=1) + "\n")
        print(name, {key: value[key] for key in value if key not in ("runs_ms", "counts")}, flush=True)

    def lacks(self, arm: str, setup: Setup) -> bool:
        return any(f"{arm}/{setup}/context{c}/concurrency{n}" not in self.cells for c, n in CELLS)


class Reference:
    """The tokens of plain decoding, by cell, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: dict[str, list[dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}

    def learn(self, cell: str, found: list[dict[str, Any]]) -> None:
        self.cells[cell] = [{"output_ids": answer["output_ids"]} for answer in found]
        self._path.write_text(json.dumps(self.cells) + "\n")


def run_cells(results: Results, known: Reference, servers: Sequence[Server]) -> None:
    """Every cell of these servers; the first server that decodes plainly is the reference of a cell that has
    none yet.
    """
    plain = next((server for server in servers if server.arm == AUTOREGRESSIVE), None)
    for context, concurrency in CELLS:
        prompts(context)  # once, before the threads below
        cell = f"context{context}/concurrency{concurrency}"
        ask = functools.partial(_or_none, context=context, concurrency=concurrency)
        with concurrent.futures.ThreadPoolExecutor(max(1, len(servers))) as pool:
            found = list(pool.map(ask, servers))
        for server, answer in zip(servers, found, strict=True):
            if server is plain and answer and cell not in known.cells:
                known.learn(cell, answer)
        for server, answer in zip(servers, found, strict=True):
            if answer is None or cell not in known.cells:
                continue
            outcome = compare(known.cells[cell], answer)
            if plain is not None:
                outcome["margins"] = {
                    number: margin(
                        plain,
                        prompts(context)[number] + known.cells[cell][number]["output_ids"][:place],
                    )
                    for number, place in outcome["differing"].items()
                }
                outcome["found"] = {number: answer[number]["output_ids"] for number in outcome["differing"]}
            results.put(f"{server.arm.name}/{server.setup}/{cell}", outcome)


def _or_none(server: Server, context: int, concurrency: int) -> list[dict[str, Any]] | None:
    try:
        return answers(server, context, concurrency)
    except (OSError, ValueError) as error:
        print(f"{server.log.stem}: {error!r}\n{server.tail()}", flush=True)
        return None


def run_draws(results: Results, servers: Sequence[Server]) -> None:
    """The distributions of sampled tokens, each speculating server against plain decoding."""
    if servers[0].arm != AUTOREGRESSIVE:
        return
    # Stock DFLASH may sample greedily on a build without its kernel, so it is no arm here.
    setup = servers[0].setup
    trees = [server for server in servers if server.arm.algorithm == "DDTREE" and server.setup == setup]
    asked = [servers[0], servers[0], *trees]  # plain decoding against itself is the control
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        expected, *found = pool.map(lambda server: draws.count(server, prompts(CONTEXTS[0])), asked)
    for server, counts in zip(asked[1:], found, strict=True):
        results.put(f"{server.arm.name}/{server.setup}/draws", draws.compare(expected, counts))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", type=Path)
    parser.add_argument(
        "--setups", nargs="*", default=["graphs/1"], help="graphs/PAGE or eager/PAGE; with + together"
    )
    parser.add_argument("--arms", nargs="*", default=list(COMPARED))
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--draws", action="store_true", help="sampled distributions too, on the first set-up")
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs")
    parser.add_argument("--commit", default="", help="noted in the results")
    parser.add_argument("--deadline", type=float, default=math.inf, help="stop before this time (time.time)")
    asked = parser.parse_args(arguments)
    if math.isfinite(asked.deadline):
        stop_in_time(asked.deadline)
    results = Results(asked.results)
    results.put("about", {"commit": asked.commit, "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}"})
    known = Reference(asked.results.with_suffix(".tokens.json"))
    planned = [
        [
            (arm, setup)
            for mode, page in (name.split("/") for name in together.split("+"))
            for setup in (Setup(mode == "graphs", int(page), tp=asked.tp),)
            for arm in arms(asked.arms)
            if results.lacks(arm.name, setup)
        ]
        for together in asked.setups
    ]
    planned = [wave for wave in planned if wave]
    missing = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for number, servers in enumerate(waves(planned, folder)):
            missing += len(planned[number]) - len(servers)
            try:
                run_cells(results, known, servers)
                if asked.draws and number == 0:
                    run_draws(results, servers)
            except Exception:  # one set-up's failure must not cost the others
                traceback.print_exc()
                missing += 1
    wrong = [name for name, cell in results.cells.items() if cell.get("equal") is False]
    print(f"{sum('equal' in cell for cell in results.cells.values())} cells, differing: {wrong or 'none'}")
    return 1 if wrong or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
