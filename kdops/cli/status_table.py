"""How `kdops status` shows its rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kdops.observe.row import Row
from kdops.text import columns, printable

_COLUMNS = ("HOST", "STATE", "RELEASE", "SINCE", "RESTARTS", "RUNNING", "QUEUED", "TOK/S", "AL")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as an aligned table, each followed by its notes; what hosts say cannot act on it."""
    lines: list[str] = []
    aligned = columns([_COLUMNS, *(_cells(row) for row in rows)])
    for line, notes in zip(aligned, ((), *(row.notes for row in rows)), strict=True):
        lines += [line, *(f"    {note}" for note in notes)]
    return "\n".join(map(printable, lines))


def duration(seconds: float | None) -> str:
    """Return seconds as a person says them: 45 s, 12 min, 5 h, 3 d."""
    if seconds is None:
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


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
