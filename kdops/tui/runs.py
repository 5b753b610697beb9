"""Measurements as the A/B view shows them: the list, the running estimate, the report. Reads the store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdops.bench.arms import REFERENCE
from kdops.bench.leg import Leg
from kdops.bench.rates import mean_log
from kdops.errors import KdopsError
from kdops.report import terminal
from kdops.store import Store, StoredRun
from kdops.text import columns


@dataclass(frozen=True)
class RunLine:
    """One run of the list. done, legs: measured and planned."""

    id: str
    host: str
    state: str
    done: int
    legs: int
    arms: tuple[str, ...]


@dataclass(frozen=True)
class Estimate:
    """What the legs so far say of one candidate: ratio of tokens/s to the baseline, 95 % interval or None."""

    arm: str
    ratio: float
    low: float | None
    high: float | None
    legs: tuple[int, int]

    @property
    def words(self) -> str:
        """One line, marked for what it is."""
        interval = (
            "no interval before two legs an arm" if self.low is None else f"{self.low:.3f} to {self.high:.3f}"
        )
        legs = f"{self.legs[0]} + {self.legs[1]} legs"
        return f"{self.arm}: × {self.ratio:.3f}  ({interval}; {legs})  not a verdict yet"


def listing(store: Store) -> list[RunLine]:
    """Return all runs, newest first."""
    finished = store.finished()
    return [
        RunLine(one.id, one.host, one.state, finished.get(one.id, 0), one.legs, one.arms)
        for one in store.runs()
    ]


def about(store: Store, id_: str) -> list[str]:
    """Return the lines about one run: its report, else how far it is and what its legs say so far.

    A run that goes on has no report before what served is restored.
    """
    from kdops.bench.stored import readable  # it brings scipy

    stored = store.run(id_)
    with readable(stored):
        return _about(stored, store)


def _about(stored: StoredRun, store: Store) -> list[str]:
    from kdops.bench.stored import result

    if stored.state == "running":
        return _so_far(stored, store)
    try:
        return terminal.screen(result(stored, store))
    except KdopsError as error:
        return [
            f"{error.title}: {error.cause}", "", *_so_far(stored, store), "", f"remedy: {error.remedy}",
        ]  # fmt: skip


def _so_far(stored: StoredRun, store: Store) -> list[str]:
    """Return a line a leg in the order they run, then the estimates."""
    from kdops.bench.stored import leg, positions
    from kdops.bench.verdict import REFERENCE_LEG

    plan, measured = stored.plan, store.legs(stored.id)
    legs = {at: leg(plan, at, found) for at, found in measured.items() if at != REFERENCE_LEG}
    wanted = positions(plan)
    missing = [position for position in wanted if position not in measured]
    now = missing[0] if missing and stored.state == "running" else None
    rows = [("LEG", "ARM", "TOK/S")]
    for number, position in enumerate(wanted, 1):
        if position in legs:
            rate = _rate(plan, legs[position])
            told = "a prompt set is missing" if rate is None else f"{math.exp(rate):.1f}"
        else:
            told = "measured now" if position == now else "measured" if position in measured else "-"
        reference = position == REFERENCE_LEG
        name = f"{REFERENCE} (reference)" if reference else str(_arm(plan, position)["name"])
        rows.append((str(number), name, told))
    found = [one.words for one in estimates(plan, legs)]
    return [*columns(rows), *(["", *found] if found else [])]


def _arm(plan: Mapping[str, Any], position: int) -> Mapping[str, Any]:
    found: Mapping[str, Any] = plan["arms"][plan["order"][position]]
    return found


def _rate(plan: Mapping[str, Any], leg: Leg) -> float | None:
    """Return the mean of the logarithms of the sets' tokens/s, None if a set is missing."""
    sets: Sequence[str] = plan["sets"]
    if not all(name in leg.stages for name in sets):
        return None
    return mean_log(leg.stages[name].tokens_per_second for name in sets)


def estimates(plan: Mapping[str, Any], legs: Mapping[int, Leg]) -> list[Estimate]:
    """Return the estimate of each candidate that has a leg, as the baseline has. Pure."""
    values: dict[int, list[float]] = {}
    for position, leg in sorted(legs.items()):
        value = _rate(plan, leg)
        if value is not None:
            values.setdefault(plan["order"][position], []).append(value)
    base = values.get(0)
    if not base:
        return []
    return [
        _estimate(plan["arms"][arm]["name"], base, values[arm])
        for arm in range(1, len(plan["arms"]))
        if arm in values
    ]


def _estimate(name: str, base: Sequence[float], ours: Sequence[float]) -> Estimate:
    from scipy import stats  # two seconds, which the first frame does not wait for

    effect = sum(ours) / len(ours) - sum(base) / len(base)
    low = high = None
    if min(len(base), len(ours)) >= 2:
        found = stats.ttest_ind(ours, base, equal_var=False).confidence_interval()
        if math.isfinite(found.low) and math.isfinite(found.high):
            low, high = math.exp(found.low), math.exp(found.high)
    return Estimate(name, math.exp(effect), low, high, (len(base), len(ours)))
