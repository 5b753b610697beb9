"""Markdown tables of results files: python engine/benchmarks/tables.py RESULTS.json ..."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Cells = dict[str, dict[str, Any]]


def equality(cells: Cells) -> Iterator[str]:
    """One row for each server, one column for each context and concurrency."""
    found = {
        tuple(name.removeprefix("equal/").split("/", 1)): cell
        for name, cell in cells.items()
        if "equal" in cell or "reference" in cell
    }
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for (arm, rest), cell in found.items():
        setup, _, where = rest.partition("/context")
        rows.setdefault(f"{arm} | {setup}", {})[where.replace("/concurrency", " × ")] = cell
    columns = sorted({column for row in rows.values() for column in row}, key=lambda text: (len(text), text))
    if rows:
        yield "| arm | set-up | " + " | ".join(f"{column}" for column in columns) + " |"
        yield "|---|---|" + "---|" * len(columns)
    for name, row in rows.items():
        yield f"| {name} | " + " | ".join(_equal(row.get(column)) for column in columns) + " |"


def _equal(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "-"
    if "reference" in cell:
        return "reference"
    length = cell["acceptance_length"]
    if cell["equal"]:
        return "equal" + (f", AL {length}" if length else "")
    return f"{len(cell['differing'])} of 8 differ (margins {sorted(cell.get('margins', {}).values())})"


def draws(cells: Cells) -> Iterator[str]:
    found = {name: cell for name, cell in cells.items() if name.endswith("/draws")}
    if found:
        yield "| arm | draws | chi-square | degrees of freedom | p |"
        yield "|---|---|---|---|---|"
    for name, cell in found.items():
        yield (
            f"| {name.removesuffix('/draws')} | {cell['draws']:,} | {cell['chi_square']} |"
            f" {cell['degrees_of_freedom']} | {cell['p']:.3f} |"
        )


def steps(cells: Cells) -> Iterator[str]:
    """One row for each cell; the ratio is to stock DFLASH in the same turn."""
    found = {name: cell for name, cell in cells.items() if "step_ms" in cell}
    if found:
        yield "| model | arm | set-up | context × batch | step, ms | of DFLASH | tokens/s |"
        yield "|---|---|---|---|---|---|---|"
    for name, cell in found.items():
        model, arm, rest = name.split("/", 2)
        setup, _, where = rest.partition("/context")
        where = where.replace("/batch", " × ")
        yield (
            f"| {model} | {arm} | {setup} | {where} | {cell['step_ms']:.3f} | {cell['of_first']:.3f} |"
            f" {cell['tokens_per_second']:,.0f} |"
        )


def kinds(cells: Cells) -> Iterator[str]:
    """By kind of text, from steps.py: `sets/ARM` holds a cell for each kind."""
    found = {name: cell for name, cell in _of_sets(cells, 1).items() if name != "choices"}
    names = list(next(iter(found.values()), {}))
    if found:
        yield "| arm | " + " | ".join(f"{name}: AL, tokens/s" for name in names) + " |"
        yield "|---|" + "---|" * len(names)
    for arm, cell in found.items():
        parts = [
            f"{cell[name]['acceptance_length']:.2f}, {cell[name]['tokens_per_second']:,.0f}" for name in names
        ]
        yield f"| {arm} | " + " | ".join(parts) + " |"


def sets(cells: Cells) -> Iterator[str]:
    """By prompt set, from auto.py: `sets/SET/ARM`."""
    found = {tuple(name.split("/")): cell for name, cell in _of_sets(cells, 2).items()}
    names = list(dict.fromkeys(name for name, _ in found))
    columns = list(dict.fromkeys(arm for _, arm in found if arm != "ratio"))
    if found:
        yield "| set | " + " | ".join(f"{arm}: tokens/s (AL)" for arm in columns) + " |"
        yield "|---|" + "---|" * len(columns)
    for name in names:
        yield f"| {name} | " + " | ".join(_speed(found.get((name, arm))) for arm in columns) + " |"


def _speed(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "-"
    length = cell["acceptance_length"]
    return f"{cell['tokens_per_second']:,.0f}" + (f" ({length:.2f})" if length else "")


def _of_sets(cells: Cells, parts: int) -> Cells:
    named = {name.removeprefix("sets/"): cell for name, cell in cells.items() if name.startswith("sets/")}
    return {name: cell for name, cell in named.items() if name.count("/") == parts - 1}


def profiles(cells: Cells) -> Iterator[str]:
    found = {name: cell for name, cell in cells.items() if name.endswith("/profile")}
    if found:
        yield "| server | rank | kernels, ms a step | collectives among them, ms | calls a step |"
        yield "|---|---|---|---|---|"
    for name, cell in found.items():
        for rank, part in enumerate(cell["ranks"]):
            calls = ", ".join(f"{call} {count}" for call, count in part["launches"].items())
            yield (
                f"| {name.removesuffix('/profile')} | {rank} | {part['kernels_ms']:.3f} |"
                f" {part['collectives_ms']:.3f} | {calls} |"
            )


def main(paths: Sequence[str]) -> int:
    for path in paths:
        read = json.loads(Path(path).read_text())
        cells: Cells = {name: cell for name, cell in read.items() if isinstance(cell, dict)}
        print(f"\n`{Path(path).name}`: {cells.get('about', {})}")
        for table in (equality, draws, steps, kinds, sets, profiles):
            lines = list(table(cells))
            if lines:
                print("", *lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
