"""Token equality of our attention inside a real SGLang, fp32, against its stock Triton kernels.

    python engine/benchmarks/attention_equality.py RESULTS.json [--arms autoregressive dflash ...]

Plain decoding with the stock kernels is the reference; every other server runs with
`KDTREE_VERIFY_ATTENTION=kdtree`. Run it where SGLang 0.5.23 and a GPU are.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attention_servers import killing, start, tiny_flags, wait_up
from equality import CELLS, answers, compare, prompts
from gpu_servers import AUTOREGRESSIVE, LINEAR, Server, ddtree

ARMS = {arm.name: arm for arm in (AUTOREGRESSIVE, LINEAR, ddtree(8), ddtree(16), ddtree(32))}
READY_SECONDS = 230.0


def _answers(server: Server, up: bool, context: int, concurrency: int) -> list[dict[str, Any]] | None:
    return answers(server, context, concurrency) if up else None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", type=Path)
    parser.add_argument("--arms", nargs="+", default=["autoregressive", "dflash", "ddtree-16"], choices=ARMS)
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs")
    asked = parser.parse_args(arguments)
    folder = asked.logs or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    wanted = [("stock", AUTOREGRESSIVE), *(("kdtree", ARMS[name]) for name in asked.arms)]
    graphs = {"KDTREE_TRY_GRAPHS": "1"}
    servers = [
        start(f"{arm.name}-{attention}", attention, tiny_flags(arm), folder, exact=True, extra=graphs)
        for attention, arm in wanted
    ]
    cells: dict[str, Any] = {}
    with killing(servers), concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
        deadline = time.monotonic() + READY_SECONDS
        up = list(pool.map(lambda server: wait_up(server, deadline), servers))
        if not up[0]:
            return 1
        for context, concurrency in CELLS:
            prompts(context)  # once, before the threads below
            cell = partial(_answers, context=context, concurrency=concurrency)
            found = list(pool.map(cell, servers, up))
            for (attention, arm), answer in zip(wanted[1:], found[1:], strict=True):
                name = f"{arm.name}/{attention}/context{context}/concurrency{concurrency}"
                cells[name] = {"equal": None} if answer is None else compare(found[0], answer)
                print(name, cells[name], flush=True)
            asked.results.write_text(json.dumps(cells, indent=1) + "\n")
    return 0 if all(cell["equal"] for cell in cells.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
