"""Token equality of our attention inside a real SGLang, fp32 with CUDA graphs, against its Triton kernels.

    python engine/benchmarks/attention_equality.py RESULTS.json [--arms autoregressive dflash ...]

Plain decoding with SGLang's own kernels is the reference; the other servers run with
`KDTREE_VERIFY_ATTENTION=kdtree`. Run where equality.py is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from equality import CELLS, Reference, run_cells, tokens_beside, verdict
from runs import options, planned, running
from servers import AUTOREGRESSIVE, Setup, arms, serving


def main(arguments: Sequence[str]) -> int:
    parser = options(__doc__, arms=("autoregressive", "dflash", "ddtree-32"), cells=CELLS)
    asked = parser.parse_args(arguments)
    stock = Setup(batches=(1, 8), tp=asked.tp, device=asked.device)
    ours = replace(stock, environment=(("KDTREE_VERIFY_ATTENTION", "kdtree"),))
    wave = [(AUTOREGRESSIVE, stock)]
    wave += [(replace(arm, name=f"{arm.name}-kdtree"), ours) for arm in arms(asked.arms)]
    if asked.plan:
        return planned([wave])
    with running(asked) as (results, folder), serving(wave, folder, asked.after) as servers:
        run_cells(results, Reference(tokens_beside(asked.results)), servers, asked.cells)
        return verdict(results, len(wave) - len(servers))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
