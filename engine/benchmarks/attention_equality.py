"""Token equality of our attention inside a real SGLang, fp32 with CUDA graphs, against its Triton kernels.

    python engine/benchmarks/attention_equality.py RESULTS.json [--arms autoregressive dflash ...]

Plain decoding with SGLang's own kernels is the reference; the other servers run with
`KDTREE_VERIFY_ATTENTION=kdtree`. Resumable and run where equality.py is.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from equality import Reference, Results, run_cells
from gpu_servers import AUTOREGRESSIVE, Setup, arms, serving

BATCHES = (1, 8)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("results", type=Path)
    parser.add_argument("--arms", nargs="+", default=["autoregressive", "dflash", "ddtree-32"])
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs")
    asked = parser.parse_args(arguments)
    folder = asked.logs or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    results, known = Results(asked.results), Reference(asked.results.with_suffix(".tokens.json"))
    stock = Setup(batches=BATCHES)
    ours = replace(stock, environment=(("KDTREE_VERIFY_ATTENTION", "kdtree"),))
    wave = [(AUTOREGRESSIVE, stock)]
    wave += [(replace(arm, name=f"{arm.name}-kdtree"), ours) for arm in arms(asked.arms)]
    with serving(wave, folder) as servers:
        run_cells(results, known, servers)
    cells = [cell["equal"] for cell in results.cells.values()]
    return 0 if all(cells) and len(servers) == len(wave) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
