"""How `kdops status` shows its rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kdops.observe.row import Row
from kdops.text import columns, duration, printable

_COLUMNS = ("HOST", "STATE", "RELEASE", "SINCE", "RESTARTS", "RUNNING", "QUEUED", "TOK/S", "AL")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as an aligned table, each followed by its notes; what hosts say cannot act on it."""
    lines: list[str] = []
    aligned = columns([_COLUMNS, *(_cells(row) for row in rows)])
    for line, notes in zip(aligned, ((), *(row.notes for row in rows)), strict=True):
        lines += [line, *(f"    {note}" for note in notes)]
    return "\n".join(map(printable, lines))


def _cells(row: Row) -> tuple[str, ...]:
    length = "-" if row.acceptance_length is None else f"{row.acceptance_length:.2f}"
    return (
        row.host,
        row.state,
        row.release or "-",
        duration(row.since),
        *("-" if value is None else str(value) for value in (row.restarts, row.running, row.queued)),
        "-" if row.tokens_per_second is None else f"{row.tokens_per_second:.1f}",
        f"{length} (SGLang's)" if row.al_source == "SGLang's" else length,
    )
