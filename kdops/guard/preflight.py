"""Can this host take the release? The rows of a check, all of them or only those that cost nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kdops.errors import ExitCode, KdopsError
from kdops.guard.checks import collective, disk, gpus, models, parser, ports, sandbox, system, units
from kdops.guard.checks.ask import Question
from kdops.guard.checks.row import Row, State, worst_first
from kdops.guard.context import Context


def preflight(ctx: Context, asked: Question) -> list[Row]:
    """Return the failing rows of the quick checks: asked again with the lock held, before the upload."""
    return [row for row in _quick(ctx, asked) if row.state is State.FAIL]


def refuse(rows: list[Row]) -> None:
    """Raise KdopsError (exit 5) that names every failing row; do nothing when there is none."""
    failing = [row for row in worst_first(rows) if row.state is State.FAIL]
    if not failing:
        return
    first, *rest = failing
    raise KdopsError(
        first.headline,
        cause=first.text,
        remedy=first.remedy,
        code=ExitCode.REFUSED,
        evidence=tuple(f"also: {row.found}" for row in rest),
    )


def check(ctx: Context, asked: Question) -> dict[str, Any]:
    """Return every row, and the facts only this host has: models' config.json, the parser's options."""
    venv = ctx.layout.venvs / asked.venv
    with ThreadPoolExecutor(2) as pool:
        options = pool.submit(parser.options, venv, ctx.layout.checks / "options", asked)
        rows = [*system.clock(asked), *_quick(ctx, asked), *sandbox.rows(ctx, asked)]
        rows += collective.rows(ctx, asked)
        found = options.result()
    folders = [Path(path) for path in asked.models if path.startswith("/")]
    return {
        "rows": [asdict(row) for row in rows],
        "configs": {str(folder): models.config(folder) for folder in folders},
        "weights": {str(folder): models.weight_bytes(folder) for folder in folders},
        "parser": found,
    }


def _quick(ctx: Context, asked: Question) -> Iterator[Row]:
    yield from disk.rows(ctx, asked)
    yield from system.systemd()
    yield from models.rows(asked)
    yield from ports.rows(ctx, asked)
    yield from units.rows(ctx, asked)
    yield from system.memory(asked)
    yield from gpus.rows(ctx, asked)
