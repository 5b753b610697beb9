"""Results as a table, as JSON and as a plot.

    python -m kdtree_engine.attention.bench.report attention.json flashmla.json --plot attention.svg

prints the cases of several runs as one table; each run's multiples are of the floor that it measured.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measurement:
    """Milliseconds of one call of `kernel` on a case, beside its floor; `error` relative to float64."""

    layer: str
    batch: int
    context: int
    rows: int
    page: int
    kernel: str
    ms: float
    floor_ms: float
    error: float | None

    @property
    def ratio(self) -> float:
        return self.ms / self.floor_ms


@dataclass(frozen=True)
class Setting:
    """What the numbers depend on. `bandwidth` in bytes and `rate` in operations a second, both measured."""

    device: str
    bandwidth: float
    rate: float
    torch: str
    triton: str
    command: str
    commit: str


def table(results: Sequence[Measurement]) -> str:
    """One line a case: floor, then microseconds and multiple of the floor for each kernel."""
    kernels = list(dict.fromkeys(m.kernel for m in results))
    cases = sorted({_case(m) for m in results}, key=lambda case: (case[0] != results[0].layer, *case[1:]))
    found = {(*_case(m), m.kernel): m for m in results}
    lines = ["layer         batch context rows page  floor us" + "".join(f"{k:>20}" for k in kernels)]
    for case in cases:
        row = [found.get((*case, kernel)) for kernel in kernels]
        floor = next(m.floor_ms for m in row if m is not None)
        cells = "".join(f"{'' if m is None else f'{m.ms * 1e3:.1f} ({m.ratio:.2f}x)':>20}" for m in row)
        lines.append(
            f"{case[0]:13} {case[1]:5} {case[2]:7} {case[3]:4} {case[4]:4} {floor * 1e3:9.1f}{cells}"
        )
    for kernel in kernels:
        errors = [m.error for m in results if m.kernel == kernel and m.error is not None]
        if errors:
            lines.append(f"relative error of {kernel}: at most {max(errors):.1e}")
    return "\n".join(lines)


def _case(m: Measurement) -> tuple[str, int, int, int, int]:
    return m.layer, m.batch, m.context, m.rows, m.page


def write_json(path: Path, setting: Setting, results: Sequence[Measurement]) -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    document = {"date": now, "setting": asdict(setting), "results": [asdict(m) for m in results]}
    path.write_text(json.dumps(document, indent=1) + "\n")


def write_plot(path: Path, device: str, results: Sequence[Measurement]) -> None:
    """Time over context at batch 1 and page 1, a panel for each row count; format by the file's suffix."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [m for m in results if m.batch == 1 and m.page == 1 and m.layer == results[0].layer]
    rows = sorted({m.rows for m in shown})
    figure, axes = pyplot.subplots(1, len(rows), figsize=(4.2 * len(rows), 4), sharey=True, squeeze=False)
    for axis, count in zip(axes[0], rows, strict=True):
        panel = sorted((m for m in shown if m.rows == count), key=lambda m: m.context)
        for kernel in dict.fromkeys(m.kernel for m in panel):
            line = [m for m in panel if m.kernel == kernel]
            axis.plot([m.context for m in line], [m.ms for m in line], marker="o", label=kernel)
        floor = {m.context: m.floor_ms for m in panel}
        axis.plot(list(floor), list(floor.values()), "k--", label="floor")
        axis.set(xscale="log", yscale="log", xlabel="context (tokens)", title=f"{count} rows")
    axes[0][0].set_ylabel("ms a layer")
    axes[0][-1].legend()
    figure.suptitle(f"{results[0].layer}, {device}")
    figure.tight_layout()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kdtree_engine.attention.bench.report", description=__doc__
    )
    parser.add_argument("runs", type=Path, nargs="+", metavar="JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also plot; the suffix chooses the format")
    options = parser.parse_args(arguments)
    documents = [json.loads(path.read_text()) for path in options.runs]
    results = [Measurement(**m) for document in documents for m in document["results"]]
    print(table(results))
    if options.plot:
        write_plot(options.plot, documents[0]["setting"]["device"], results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
