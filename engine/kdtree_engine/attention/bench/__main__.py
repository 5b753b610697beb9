"""Stock kernel, ours, FlashMLA and the floor in one run on this machine's GPU.

    python -m kdtree_engine.attention.bench --out results

The stock kernel is measured where SGLang is importable, FlashMLA where `sgl_kernel.flash_mla` is; what
is not is left out (the two may need different installations and a second run with `--only flashmla`).
The JSON is written after each case, so a run that is ended early keeps what it has;
`python -m kdtree_engine.attention.bench.report` prints and plots one or several of them.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import triton

from kdtree_engine.attention.bench import contenders
from kdtree_engine.attention.bench.accuracy import relative_error
from kdtree_engine.attention.bench.cases import Case, Inputs, case_grid
from kdtree_engine.attention.bench.report import Measurement, Setting, table, write_json, write_plot
from kdtree_engine.attention.bench.timing import copy_bandwidth, graph_ms, matrix_rate
from kdtree_engine.attention.devices import Device, detect
from kdtree_engine.attention.plan import suits_hopper
from kdtree_engine.attention.shapes import gqa, mla
from kdtree_engine.attention.tiles import portable_tiles

CONTEXTS = (1408, 5568, 32768, 65536, 131072, 185024)
ROWS = (1, 8, 16, 33)
# (batch, context, rows) that have a required multiple of the floor: measured first.
JUDGED = {
    (1, 185024, 8), (1, 185024, 33), (1, 131072, 8), (1, 131072, 33), (1, 32768, 8), (1, 32768, 33),
    (1, 5568, 8), (1, 1408, 8), (8, 32768, 8), (8, 32768, 33),
}  # fmt: skip
Build = Callable[[Inputs], contenders.Calls]


def cases(quick: bool) -> list[Case]:
    """The grid of MLA and GQA cases, and other page sizes at 32k; judged MLA cases first."""
    rows = (8, 33) if quick else ROWS
    grid = case_grid(mla(8), "mla-8", CONTEXTS, rows)
    pages = [Case("mla-8", mla(8), 1, 32768, 8, page) for page in (16, 64)]
    contexts = (5568, 32768, 131072) if quick else CONTEXTS
    grid.sort(key=lambda case: (case.batch, case.context, case.rows) not in JUDGED)
    return grid + pages + case_grid(gqa(16, 2, 128), "gqa-16/2x128", contexts, rows)


def kernels(case: Case, device: Device, only: Sequence[str]) -> dict[str, Build]:
    """What can compute this case here, by name."""
    portable = portable_tiles(case.shape, device, case.rows)
    builds: dict[str, Build] = {
        "stock": contenders.stock,
        "portable": lambda inputs: contenders.ours(inputs, device, portable),
    }
    if suits_hopper(case.shape, device):
        builds["hopper"] = lambda inputs: contenders.ours(inputs, device)
    if case.shape.shared_kv and case.context % 64 == 0:
        builds["flashmla"] = contenders.flashmla
    return {name: build for name, build in builds.items() if name in only}


def measure(
    case: Case, builds: dict[str, Build], l2_bytes: int, ceilings: tuple[float, float]
) -> list[Measurement]:
    """Time every kernel on the same inputs. FlashMLA gets pages of 64, which it requires."""
    found = []
    for name, build in builds.items():
        page = 64 if name == "flashmla" else case.page
        inputs = Inputs(replace(case, page=page), l2_bytes)
        try:
            calls = build(inputs)
        except ImportError as missing:
            print(f"{name} is not installed here: {missing}", file=sys.stderr, flush=True)
            continue
        error = relative_error(inputs, calls) if name in ("portable", "hopper") else None
        ms = graph_ms(calls, 1.0 if name == "stock" else 30.0)
        where = (case.name, case.batch, case.context, case.rows, case.page)
        found.append(Measurement(*where, name, ms, case.floor_ms(*ceilings), error))
        print(f"{where} {name}: {ms * 1e3:.1f} us, {found[-1].ratio:.2f}x", file=sys.stderr, flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m kdtree_engine.attention.bench", description=__doc__)
    parser.add_argument(
        "--out", type=Path, default=Path(), help="folder for attention.json and attention.svg"
    )
    parser.add_argument("--quick", action="store_true", help="8 and 33 rows only")
    parser.add_argument(
        "--only", nargs="+", default=["stock", "portable", "hopper", "flashmla"], metavar="KERNEL"
    )
    parser.add_argument("--commit", default="unknown", help="written into the JSON")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("no CUDA device here")
    device = detect()
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    ceilings = copy_bandwidth(), matrix_rate()
    torch.cuda.empty_cache()
    command = shlex.join(["python", "-m", "kdtree_engine.attention.bench", *(arguments or sys.argv[1:])])
    versions = (torch.__version__, triton.__version__)
    setting = Setting(device.name, *ceilings, *versions, command, options.commit)
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[Measurement] = []
    for case in cases(options.quick):
        results += measure(case, kernels(case, device, options.only), l2_bytes, ceilings)
        write_json(options.out / "attention.json", setting, results)
    print(f"{device.name}: {ceilings[0] / 1e12:.2f} TB/s copied, {ceilings[1] / 1e12:.0f} TFLOP/s")
    print(table(results))
    write_plot(options.out / "attention.svg", setting.device, results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
