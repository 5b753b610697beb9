"""`--ddtree-budget auto` on a GPU with CUDA graphs: equal tokens while widths alternate, then tokens/s.

    python engine/benchmarks/auto.py RESULTS.json --equal --sets

--equal: plain decoding against auto whose widths follow a seeded sequence (tests/replay/kdtree_widths.py),
fp32. --sets: decoded tokens/s of plain decoding, DFLASH, every fixed width and auto for each prompt set of
`kdops bench` (kdops/bench/workloads), bf16, one request at a time, servers in turns with the others stopped.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import itertools
import json
import math
import os
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from equality import Results, compare, prompts
from gpu_servers import CHECKOUT, PAIR, Arm, Server, Setup, arms, serving, stop_in_time
from steps import alone
from transformers import AutoTokenizer

AUTO = Arm("ddtree-auto", "DDTREE", ("--ddtree-budget=auto",))
FIXED = ("autoregressive", "dflash", "ddtree-8", "ddtree-16", "ddtree-32")
SET_PROMPTS, SET_TOKENS, LONG_CONTEXT, EQUAL_TOKENS = 3, 320, 6000, 160
METRICS = ("--enable-metrics",)


def install_plugin(folder: Path, name: str) -> None:
    """Let SGLang find a plugin of tests/replay; each is off unless its environment variable is set."""
    info = folder / f"{name}-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 0\n")
    (info / "entry_points.txt").write_text(f"[sglang.srt.plugins]\n{name} = {name}:register\n")
    source = CHECKOUT / "engine" / "tests" / "replay" / f"{name}.py"
    (folder / source.name).symlink_to(source)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def choices(server: Server) -> dict[str, float]:
    """Rounds by width and reason since the start, from /metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for labels, count in re.findall(r"^kdtree_budget_choice_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        values = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        name = f"{values['budget']} {values['reason']}"
        found[name] = found.get(name, 0) + float(count)
    return dict(sorted(found.items()))


def ask(server: Server, asked: Sequence[Sequence[int]], at_once: int) -> list[dict[str, Any]]:
    """EQUAL_TOKENS tokens after each of the prompts, `at_once` of them at a time."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda ids: server.generate(ids, EQUAL_TOKENS), asked))


def run_equal(results: Results, folder: Path) -> None:
    """All servers at once; auto with pages of 1 and 64, one and eight requests at once."""
    alternate = (("KDTREE_WIDTHS", "1"),)
    wanted = [(arms(["autoregressive"])[0], Setup(batches=(1, 8)))]
    for page in (1, 64):
        setup = Setup(page=page, batches=(1, 8), extra=METRICS, environment=alternate)
        wanted.append((AUTO, setup))
    with serving(wanted, folder) as servers:
        plain = next((server for server in servers if server.arm.algorithm is None), None)
        for context, at_once in itertools.product((100, 4000), (1, 8)) if plain else ():
            asked = prompts(context)
            expected = ask(plain, asked, at_once)
            for server in servers:
                if server is not plain:
                    name = f"equal/{AUTO.name}/{server.setup}/context{context}/concurrency{at_once}"
                    found = compare(expected, ask(server, asked, at_once))
                    results.put(name, found | {"choices": choices(server)})


def sets() -> dict[str, list[list[int]]]:
    """Token ids of the prompts of each set; the long context is padded with its own text."""
    tokenizer = AutoTokenizer.from_pretrained(PAIR / "target")
    source = CHECKOUT / "kdops" / "bench" / "workloads" / "kdops-1.json"
    found = {}
    for name, content in json.loads(source.read_text()).items():
        texts = content["prompts"][:SET_PROMPTS]
        if content.get("pad_to"):
            pieces = [tokenizer(text)["input_ids"] for text in texts]
            found[name] = [(ids * (LONG_CONTEXT // len(ids) + 1))[:LONG_CONTEXT] for ids in pieces]
        else:
            found[name] = [tokenizer(text)["input_ids"] for text in texts]
    return found


def decoded_per_second(server: Server, asked: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Tokens per second after prefill, and the acceptance length of the verify steps."""
    took, tokens, steps, accepted = 0.0, 0, 0, 0
    for ids in asked:
        server.generate(ids, 1)  # the prefix is cached from here on
        first = server.generate(ids, 2)["meta_info"]["e2e_latency"]
        meta = server.generate(ids, SET_TOKENS)["meta_info"]
        took += meta["e2e_latency"] - first
        tokens += SET_TOKENS - 2
        steps += meta.get("spec_verify_ct", 0)
        accepted += meta.get("spec_num_correct_drafts", 0)
    length = round(1 + accepted / steps, 3) if steps else None
    return {"tokens_per_second": round(tokens / took, 1), "acceptance_length": length, "verify_steps": steps}


def run_sets(results: Results, folder: Path, after: Path | None) -> None:
    """after: the servers start now and are measured once this file exists."""
    setup = Setup(exact=False, batches=(1, 8), extra=METRICS)
    asked = sets()
    with serving([(arm, setup) for arm in (AUTO, *arms(FIXED))], folder) as servers:
        while after is not None and not after.exists():
            time.sleep(0.2)
        for (name, ids), server in itertools.product(asked.items(), servers):
            with alone(server, servers):
                decoded_per_second(server, ids[:1])
                results.put(f"sets/{name}/{server.arm.name}", decoded_per_second(server, ids))
                if server.arm is AUTO:
                    results.put("sets/choices", choices(server))
    for name in asked:
        rates = {
            arm: results.cells[f"sets/{name}/{arm}"]["tokens_per_second"]
            for arm in (*FIXED, AUTO.name)
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


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", type=Path)
    parser.add_argument("--equal", action="store_true")
    parser.add_argument("--sets", action="store_true")
    parser.add_argument("--after", type=Path, help="start servers now, measure the sets once this exists")
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs")
    parser.add_argument("--commit", default="", help="noted in the results")
    parser.add_argument("--deadline", type=float, default=math.inf, help="stop before this time (time.time)")
    asked = parser.parse_args(arguments)
    if math.isfinite(asked.deadline):
        stop_in_time(asked.deadline)
    results = Results(asked.results)
    results.put("about", {"commit": asked.commit, "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}"})
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.logs or Path(temporary)
        install_plugin(Path(temporary) / "plugin", "kdtree_widths")
        folder.mkdir(parents=True, exist_ok=True)
        if asked.equal:
            run_equal(results, folder)
        if asked.sets:
            run_sets(results, folder, asked.after)
    return 1 if any(cell.get("equal") is False for cell in results.cells.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
