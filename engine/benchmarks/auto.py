"""`--ddtree-budget auto` on a GPU: equal tokens while widths alternate, then tokens/s.

    python engine/benchmarks/auto.py RESULTS.json --equal --sets

--equal: plain decoding against auto whose widths follow a seeded sequence (tests/replay/kdtree_widths.py),
fp32, with CUDA graphs for all batches, for some and for none. --sets: decoded tokens/s of plain decoding,
DFLASH, every fixed width and auto for each prompt set of `kdops bench` (kdops/bench/workloads), bf16, one
request at a time, servers in turns with the others stopped.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from equality import CELLS, CHECKED, MODES, answers, compare, verdict
from runs import Results, options, planned, running, speculation, tokenizer
from servers import (
    AUTO,
    AUTOREGRESSIVE,
    CHECKOUT,
    Server,
    Setup,
    Wave,
    alone,
    arms,
    serving,
)

ARMS = ("ddtree-auto", "autoregressive", "dflash", "ddtree-8", "ddtree-16", "ddtree-32")
SET_PROMPTS, LONG_CONTEXT, EQUAL_TOKENS = 3, 6000, 160
METRICS = (("enable-metrics", True),)


def choices(server: Server) -> dict[str, float]:
    """Rounds by width and reason since the start, from /metrics."""
    found: dict[str, float] = {}
    text = server.request("metrics").decode()
    for labels, count in re.findall(r"^kdtree_budget_choice_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        name = f"{values['budget']} {values['reason']}"
        found[name] = found.get(name, 0) + float(count)
    return dict(sorted(found.items()))


def equal_wave(tp: int, device: str) -> Wave:
    """Plain decoding, and auto with pages of 1 and 64, without graphs and with graphs for small batches."""
    how: dict[str, Any] = {"batches": (1, 8), "tp": tp, "device": device}
    alternating = {"extra": METRICS, "environment": (("KDTREE_WIDTHS", "1"), *CHECKED)}
    alternating["plugins"] = ("kdtree_widths",)
    modes = [{"page": 1}, {"page": 64}, MODES["eager"], MODES["partly"]]
    trees = [(AUTO, Setup(**how | alternating | mode)) for mode in modes]
    return [(AUTOREGRESSIVE, Setup(**how)), *trees]


def run_equal(
    results: Results, wave: Wave, folder: Path, after: Path | None, cells: Sequence[tuple[int, int]]
) -> int:
    """All servers at once, one and eight requests at once; the servers that did not come up."""
    with serving(wave, folder, after) as servers:
        plain = next((server for server in servers if server.arm.algorithm is None), None)
        for context, at_once in cells if plain else ():
            expected = answers(plain, context, at_once, EQUAL_TOKENS)
            for server in servers:
                if server is not plain:
                    name = f"equal/{AUTO.name}/{server.setup}/context{context}/concurrency{at_once}"
                    found = compare(expected, answers(server, context, at_once, EQUAL_TOKENS))
                    results.put(name, found | {"choices": choices(server)})
        return len(wave) - len(servers)


def sets() -> dict[str, list[list[int]]]:
    """Token ids of the prompts of each set; the long context is padded with its own text."""
    encode = tokenizer()
    source = CHECKOUT / "kdops" / "bench" / "workloads" / "kdops-1.json"
    found = {}
    for name, content in json.loads(source.read_text()).items():
        pieces = [encode(text)["input_ids"] for text in content["prompts"][:SET_PROMPTS]]
        if content.get("pad_to"):
            pieces = [(ids * (LONG_CONTEXT // len(ids) + 1))[:LONG_CONTEXT] for ids in pieces]
        found[name] = pieces
    return found


def decoded_per_second(server: Server, asked: Sequence[Sequence[int]], length: int) -> dict[str, Any]:
    """Tokens per second after prefill, and the acceptance length of the verify steps."""
    took, metas = 0.0, []
    for ids in asked:
        server.generate(ids, 1)  # the prefix is cached from here on
        first = server.generate(ids, 2)["meta_info"]["e2e_latency"]
        meta = server.generate(ids, length)["meta_info"]
        took += meta["e2e_latency"] - first
        metas.append(meta)
    return {"tokens_per_second": round(len(asked) * (length - 2) / took, 1), **speculation(metas)}


def run_sets(results: Results, wave: Wave, folder: Path, after: Path | None, length: int) -> int:
    """All kinds of text, each with `length` tokens; the servers that did not come up."""
    asked = sets()
    with serving(wave, folder, after) as servers:
        for (name, ids), server in itertools.product(asked.items(), servers):
            with alone(server, servers):
                decoded_per_second(server, ids[:1], length)
                results.put(f"sets/{name}/{server.arm.name}", decoded_per_second(server, ids, length))
                if server.arm is AUTO:
                    results.put("sets/choices", choices(server))
        missing = len(wave) - len(servers)
    for name in asked:
        rates = {
            arm: results.cells[f"sets/{name}/{arm}"]["tokens_per_second"]
            for arm in ARMS
            if f"sets/{name}/{arm}" in results.cells
        }
        if AUTO.name not in rates or len(rates) < 2:
            continue
        auto = rates.pop(AUTO.name)
        best = max(rates, key=lambda arm: rates[arm])
        simple = [rates[arm] for arm in ("autoregressive", "dflash") if arm in rates]
        ratios = {"over_best_fixed": round(auto / rates[best], 3), "best_fixed": best}
        if simple:
            ratios["over_chain_or_plain"] = round(auto / max(simple), 3)
        results.put(f"sets/{name}/ratio", ratios)
    return missing


def main(arguments: Sequence[str]) -> int:
    parser = options(__doc__, arms=ARMS, cells=CELLS)
    parser.add_argument("--equal", action="store_true", help="in --cells")
    parser.add_argument("--sets", action="store_true", help="with --arms")
    parser.add_argument("--tokens", type=int, default=320, help="of an answer in the sets")
    asked = parser.parse_args(arguments)
    timed = Setup(exact=False, batches=(1, 8), tp=asked.tp, device=asked.device, extra=METRICS)
    equal = equal_wave(asked.tp, asked.device) if asked.equal else []
    fast = [(arm, timed) for arm in arms(asked.arms)] if asked.sets else []
    if asked.plan:
        return planned([equal, fast])
    missing = 0
    with running(asked) as (results, folder):
        if equal:
            missing += run_equal(results, equal, folder, asked.after, asked.cells)
        if fast:
            missing += run_sets(results, fast, folder, asked.after, asked.tokens)
    return verdict(results, missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
