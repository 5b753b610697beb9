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
    """check: what was looked at. text: what is so; where `title` says what is wrong, the cause of it."""

    check: str
    state: State
    text: str
    remedy: str = ""
    title: str = ""

    @property
    def found(self) -> str:
        """Title and text in one line."""
        return f"{self.title}: {self.text}" if self.title else self.text

    @property
    def headline(self) -> str:
        """What is wrong, in a few words."""
        return self.title or f"the check '{self.check}' failed"


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """Return the rows by state; the order within one stays."""
    order = list(State)
    return sorted(rows, key=lambda row: order.index(row.state))
