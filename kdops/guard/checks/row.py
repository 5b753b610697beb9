"""One row of a check's table; shared by the host side and the operator's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Worst first. FAIL: a deploy would be refused. WARN: it would start, and someone should look."""

    FAIL = "fail"
    WARN = "warn"
    NOT_RUN = "not run"
    OK = "ok"


@dataclass(frozen=True)
class Row:
    """check: what was looked at. found: what is so; of a failing row the cause, beside a remedy."""

    check: str
    state: State
    found: str
    remedy: str = ""


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """Return the rows by state; the order within one stays."""
    order = list(State)
    return sorted(rows, key=lambda row: order.index(row.state))
