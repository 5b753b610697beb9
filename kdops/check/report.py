"""The result of a check: rows, worst first."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdops.errors import ExitCode, KdopsError
from kdops.guard.checks.row import Row, State, worst_first


@dataclass(frozen=True)
class Report:
    """rows: worst first. seconds: what it took."""

    host: str
    profile: str
    rows: tuple[Row, ...]
    seconds: float

    @property
    def refused(self) -> bool:
        """Would a deploy be refused?"""
        return any(row.state is State.FAIL for row in self.rows)


def report(host: str, profile: str, rows: Iterable[Row], seconds: float) -> Report:
    """Return the rows as a report, each once."""
    return Report(host, profile, tuple(worst_first(dict.fromkeys(rows))), round(seconds, 1))


def refusal(found: Report, options: Sequence[str] = ()) -> KdopsError:
    """Return the error of a deploy that this report refuses: its first failing row, then the others.

    options: what `kdops check` needs besides the profile to look at the same settings.
    """
    first, *rest = [row for row in found.rows if row.state is State.FAIL]
    check = shlex.join(["kdops", "check", found.host, "--profile", found.profile, *options])
    return KdopsError(
        f"{found.host}: {first.headline}",
        cause=first.text,
        remedy=f"{first.remedy}; nothing was changed. `{check}` shows every row",
        code=ExitCode.REFUSED,
        evidence=tuple(f"also: {row.found}; {row.remedy}" for row in rest),
    )
