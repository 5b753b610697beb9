"""A result as a JSON document and back-readable parts; written and replaced whole."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kdops.bench.records import RequestRecord
from kdops.bench.results import RunResult
from kdops.errors import KdopsError
from kdops.report import exports
from kdops.report.html import page

SCHEMA = 1


def document(result: RunResult) -> dict[str, Any]:
    """Return `result` as plain values (docs/measuring.md, "report.json")."""
    return {"schema": SCHEMA, "valid": result.valid, **dataclasses.asdict(result)}


def write(result: RunResult, records: Sequence[RequestRecord], folder: Path) -> Path:
    """Write the report to `folder`: a page, JSON, OpenMetrics, AIPerf's records. Returns the page's path.

    Raises KdopsError when it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document(result), indent=1, allow_nan=False)
        files = {
            "report.json": text,
            "report.html": page(result),
            "openmetrics.txt": exports.openmetrics(result),
            "aiperf.jsonl": exports.aiperf(result, records),
        }
        for name, content in files.items():
            temporary = folder / f".{name}.new"
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(folder / name)
    except OSError as error:
        raise KdopsError(
            "the report cannot be written",
            cause=f"{folder}: {error.strerror}",
            remedy="set KDOPS_STATE to a folder that can be written; then kdops ab show",
        ) from error
    return folder / "report.html"
