"""Which hosts are shown, and in what order. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdops.tui.columns import Column
from kdops.tui.sample import Sample

GROUPS = ("", "state", "profile")


@dataclass(frozen=True)
class Order:
    """column: the name of the column sorted by; group: one of GROUPS; pattern: words a host must have."""

    column: str = "HOST"
    reverse: bool = False
    group: str = ""
    pattern: str = ""


def group_of(sample: Sample, group: str) -> str:
    """Return the group a host is in."""
    return {"state": sample.row.state, "profile": sample.row.profile or "no profile"}.get(group, "")


def arrange(samples: Mapping[str, Sample], columns: Sequence[Column], order: Order) -> list[Sample]:
    """Return the hosts that match, grouped, then sorted; those without a value come last either way."""
    column = next((one for one in columns if one.name == order.column), columns[0])
    shown = sorted((one for one in samples.values() if matches(one, order.pattern)), key=lambda one: one.host)
    known = [one for one in shown if column.key(one) is not None]
    unknown = [one for one in shown if column.key(one) is None]
    known.sort(key=lambda one: column.key(one), reverse=order.reverse)  # type: ignore[arg-type, return-value]
    return sorted([*known, *unknown], key=lambda one: group_of(one, order.group))


def matches(sample: Sample, pattern: str) -> bool:
    """True if each word of `pattern` is in the host's name, state, profile, release or notes."""
    shown = sample.row
    text = " ".join(
        (sample.host, shown.state, shown.profile or "", shown.release or "", *shown.notes)
    ).casefold()
    return all(word in text for word in pattern.casefold().split())
