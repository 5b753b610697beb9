"""stdout carries data only; stderr carries progress and words."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from kdops.errors import KdopsError


def emit(text: str) -> None:
    """Write data to stdout, at once: a follower's reader waits for each line."""
    print(text, flush=True)


def emit_json(value: Any) -> None:
    """Write one JSON document to stdout (no NaN: a consumer must be able to parse it)."""
    print(json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False))


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return one line per row, cells aligned; every row has as many cells as the first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def say(text: str) -> None:
    """Write words for a person to stderr."""
    print(text, file=sys.stderr, flush=True)


def show_error(error: KdopsError) -> None:
    """Print title, cause, evidence and remedy to stderr."""
    say(f"error: {error.title}")
    say(f"  cause:  {error.cause}")
    for line in error.evidence:
        say(f"  | {line}")
    say(f"  remedy: {error.remedy}")
