"""Token equality on a GPU, fp32: {plain, DFLASH, DDTREE} x {graphs, partly, eager} x page x context x
concurrency, against plain decoding of the first set-up.

    python engine/benchmarks/equality.py RESULTS.json --setups graphs/1+eager/1 graphs/64+eager/64 --draws

Resumable: cells that RESULTS.json holds are not run again; the tokens of plain decoding lie in
RESULTS.tokens.json. Set-ups joined by + share the card, and the servers of the next ones start meanwhile.
Run it where SGLang 0.5.23, torch and a GPU are; of this repository it needs engine/ and models/tiny-pair.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import draws
from runs import Results, options, planned, prompts, running, speculation
from servers import AUTOREGRESSIVE, PAIR, Server, Setup, Wave, arms, waves

COMPARED = ("autoregressive", "dflash", "ddtree-8", "ddtree-16", "ddtree-32")
MODES: dict[str, dict[str, Any]] = {
    "graphs": {},
    "eager": {"graphs": False},
    "partly": {"batches": (1, 4), "requests": 8},  # larger batches run without a graph
}
CHECKED = (("KDTREE_CHECK_RANKS", "1"),)  # where there are several
CELLS, TOKENS = ("100/1", "100/8", "4000/1", "4000/8"), 96
Cells = Sequence[tuple[int, int]]  # context and concurrency


def answers(server: Server, context: int, concurrency: int, tokens: int = TOKENS) -> list[dict[str, Any]]:
    """`tokens` tokens after each prompt of a cell, `concurrency` at a time. Raises OSError, as the server."""
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda ids: server.generate(ids, tokens), prompts(context)))


def compare(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, Any]:
    """equal; the requests that differ and where first; acceptance length."""
    differing = {}
    for number, (left, right) in enumerate(zip(expected, found, strict=True)):
        pairs = enumerate(zip(left["output_ids"], right["output_ids"], strict=True))
        place = next((index for index, (a, b) in pairs if a != b), None)
        if place is not None:
            differing[number] = place
    length = speculation([answer["meta_info"] for answer in found])["acceptance_length"]
    return {"equal": not differing, "differing": differing, "acceptance_length": length}


def margin(server: Server, ids: list[int]) -> float:
    """How far apart the two best tokens after `ids` are, in log-probability."""
    body = {"return_logprob": True, "top_logprobs_num": 2}
    (best, second) = server.generate(ids, 1, body=body)["meta_info"]["output_top_logprobs"][0][:2]
    return round(float(best[0] - second[0]), 6)


class Reference:
    """The tokens of plain decoding, by cell, kept in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: dict[str, list[dict[str, Any]]] = json.loads(path.read_text()) if path.exists() else {}

    def learn(self, cell: str, asked: list[list[int]], found: list[dict[str, Any]]) -> None:
        self.cells[cell] = [
            {"input_ids": i, "output_ids": o["output_ids"]} for i, o in zip(asked, found, strict=True)
        ]
        self._path.write_text(json.dumps(self.cells) + "\n")


def tokens_beside(results: Path) -> Path:
    """The reference's file, absolute."""
    return results.with_suffix(".tokens.json").absolute()


def run_cells(results: Results, known: Reference, servers: Sequence[Server], cells: Cells) -> None:
    """Every cell of these servers; the first server that decodes plainly is the reference of a cell that has
    none yet.
    """
    plain = next((server for server in servers if server.arm == AUTOREGRESSIVE), None)
    for context, concurrency in cells:
        prompts(context)  # once, before the threads below
        cell = f"context{context}/concurrency{concurrency}"
        ask = functools.partial(_or_none, context=context, concurrency=concurrency)
        with concurrent.futures.ThreadPoolExecutor(max(1, len(servers))) as pool:
            found = list(pool.map(ask, servers))
        learned = None
        for server, answer in zip(servers, found, strict=True):
            if server is plain and answer and cell not in known.cells:
                known.learn(cell, prompts(context), answer)
                learned = server
        for server, answer in zip(servers, found, strict=True):
            if answer is None or cell not in known.cells:
                continue
            name = f"{server.arm.name}/{server.setup}/{cell}"
            if server is learned:  # equal to itself, which says nothing
                results.put(name, {"reference": True})
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
            results.put(name, outcome)


def _or_none(server: Server, context: int, concurrency: int) -> list[dict[str, Any]] | None:
    try:
        return answers(server, context, concurrency)
    except (OSError, ValueError) as error:
        print(f"{server.log.stem}: {error!r}\n{server.tail()}", flush=True)
        return None


def run_draws(results: Results, servers: Sequence[Server], samples: int) -> None:
    """The distributions of sampled tokens, each speculating server against plain decoding."""
    if not servers or servers[0].arm != AUTOREGRESSIVE:
        print("no draws: plain decoding is not among the servers", flush=True)
        return
    # Stock DFLASH may sample greedily on a build without its kernel, so it is no arm here.
    setup = servers[0].setup
    trees = [server for server in servers if server.arm.algorithm == "DDTREE" and server.setup == setup]
    asked = [servers[0], servers[0], *trees]  # plain decoding against itself is the control
    count = functools.partial(draws.count, prompts=prompts(100), samples=samples)
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        expected, *found = pool.map(count, asked)
    for server, counts in zip(asked[1:], found, strict=True):
        results.put(f"{server.arm.name}/{server.setup}/draws", draws.compare(expected, counts))


def verdict(results: Results, missing: int) -> int:
    """Say which cells differ; the exit code."""
    wrong = [name for name, cell in results.cells.items() if cell.get("equal") is False]
    print(f"{sum('equal' in cell for cell in results.cells.values())} cells, differing: {wrong or 'none'}")
    return 1 if wrong or missing else 0


def planned_waves(asked: argparse.Namespace) -> list[Wave]:
    """A wave for each group of set-ups; before all others the servers whose tokens are replayed."""
    how: dict[str, Any] = {"tp": asked.tp, "device": asked.device, "target": asked.target.absolute()}
    how["environment"] = CHECKED
    if asked.replay:
        how["plugins"] = ("kdtree_replay",)
    record = ("KDTREE_REPLAY", str(tokens_beside(asked.results)))
    replays = {"environment": (*CHECKED, record), "extra": (("disable-overlap-schedule", True),)}
    made: list[Wave] = []
    for each in asked.setups:
        wave: Wave = [
            (arm, Setup(**mode, **how | (replays if asked.replay and arm.algorithm == "DDTREE" else {})))
            for mode in each
            for arm in arms(asked.arms)
        ]
        if asked.replay and not made:
            made.append([server for server in wave if server[0] == AUTOREGRESSIVE])
            wave = [server for server in wave if server[0] != AUTOREGRESSIVE]
        made.append(wave)
    return made


def main(arguments: Sequence[str]) -> int:
    parser = options(__doc__, arms=COMPARED, cells=CELLS)
    help_ = f"MODE/PAGE, a mode being one of {', '.join(MODES)}; with + together"
    parser.add_argument(
        "--setups", nargs="+", default=["graphs/1"], type=_setups, metavar="SETUP", help=help_
    )
    parser.add_argument(
        "--target", type=Path, default=PAIR / "target", help="another one for the same drafter"
    )
    help_ = "DDTREE's drafts are the reference's tokens with seeded errors (no overlap scheduling then)"
    parser.add_argument("--replay", action="store_true", help=help_)
    parser.add_argument("--draws", action="store_true", help="sampled distributions too, on the first set-up")
    parser.add_argument(
        "--samples", type=int, default=draws.SAMPLES, help="answers to each prompt of the draws"
    )
    asked = parser.parse_args(arguments)
    if asked.replay and AUTOREGRESSIVE.name not in asked.arms:
        parser.error("--replay needs the arm autoregressive: its tokens are what is replayed")
    wanted = planned_waves(asked)
    if asked.plan:
        return planned(wanted)
    missing = 0
    with running(asked) as (results, folder):
        known = Reference(tokens_beside(asked.results))

        def lacks(name: str) -> bool:
            return any(f"{name}/context{c}/concurrency{n}" not in results.cells for c, n in asked.cells)

        wanted = [[(arm, setup) for arm, setup in wave if lacks(f"{arm.name}/{setup}")] for wave in wanted]
        wanted = [wave for wave in wanted if wave]
        for number, servers in enumerate(waves(wanted, folder, asked.after)):
            missing += len(wanted[number]) - len(servers)
            try:
                run_cells(results, known, servers, asked.cells)
                if asked.draws and number == 0:
                    run_draws(results, servers, asked.samples)
            except Exception:  # one set-up's failure must not cost the others
                traceback.print_exc()
                missing += 1
    return verdict(results, missing)


def _setups(text: str) -> list[dict[str, Any]]:
    """What MODES and the page say, for each of the set-ups joined by +."""
    parts = [name.split("/") for name in text.split("+")]
    if not all(mode in MODES for mode, _ in parts):
        raise ValueError(text)
    return [{**MODES[mode], "page": int(page)} for mode, page in parts]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
