"""Text from elsewhere made fit for a terminal, and rows of it as a table."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

# C0 except tab, DEL, C1, and what reorders or hides text (bidirectional and zero-width controls, surrogates).
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def printable(text: str) -> str:
    """Return `text` with every character that could act on a terminal made visible (ESC becomes \\x1b)."""
    return _UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def uncoloured(line: str) -> str:
    """Return `line` without a terminal's colours."""
    return _COLOUR.sub("", line) if "\x1b" in line else line


def json_printable(line: str) -> str:
    """Return a line of JSON that means the same, with every such character as JSON's own escape."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return one line per row, cells aligned and printable; every row has as many cells as the first.

    right: numbers of the columns that end at one edge, as numbers do.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [str.rjust if i in right else str.ljust for i in range(len(widths))]
    return [
        "  ".join(
            align(cell, width) for align, cell, width in zip(aligned, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def duration(seconds: float | None, units: Sequence[str] = (" s", " min", " h", " d")) -> str:
    """Return a time as a person says it: 45 s, 12 min, 5 h, 3 d; - for none."""
    if seconds is None:
        return "-"
    for size, unit in zip((86400, 3600, 60), reversed(units[1:]), strict=True):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}{units[0]}"
