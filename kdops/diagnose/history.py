"""A host's own history: what a release showed, against what the ones before it did. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kdops.diagnose.evidence import AL, START, STEP_TIME, Arm, Past
from kdops.store import Mark


def pasts(marks: Sequence[Mark], basis: str | None = None) -> tuple[Past, ...]:
    """Return a Past for each quantity of one host and profile, oldest mark first.

    basis: that of AL and step time; the newest mark's unless given. The values before are those of other
    releases or engines; while there is only one release, its own earlier ones.
    """
    found = []
    for quantity in (AL, STEP_TIME, START):
        own = [mark for mark in marks if mark.quantity == quantity]
        own = [mark for mark in own if mark.basis == (own[-1].basis if basis is None else basis)]
        if not own:
            continue
        newest = own[-1]
        same = [m for m in own if (m.release, m.engine) == (newest.release, newest.engine)]
        others = own[: own.index(same[0])]
        before = others or own[:-1]
        values = [mark.value for mark in (same if others else [newest])]
        found.append(
            Past(
                quantity,
                tuple(mark.value for mark in before),
                sum(values) / len(values),
                newest.release,
                others[-1].release if others else "",
            )
        )
    return tuple(found)


def of_arm(arm: Arm, at: str, host: str, engine: str, release: str, basis: str) -> tuple[Mark, ...]:
    """Return what a measured arm puts on record."""
    values = {STEP_TIME: arm.step_time, **({AL: arm.al} if arm.al is not None else {})}
    profile = arm.name.partition("#")[0]
    return tuple(Mark(at, host, profile, engine, release, q, basis, value) for q, value in values.items())
