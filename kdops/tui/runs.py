"""Measurements as the A/B view shows them: the list, the running estimate, the report. Reads the store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdops.bench.leg import Leg, analyse
from kdops.bench.rates import mean_log
from kdops.cli.ab_runs import result_of
from kdops.cli.output import columns
from kdops.errors import KdopsError
from kdops.report import terminal
from kdops.store import Store, StoredRun


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
    return [
        RunLine(
            one.id,
            one.host,
            one.state,
            len(store.legs(one.id)),
            len(one.plan["order"]) + bool(one.plan["reference"]),
            tuple(arm["name"] for arm in one.plan["arms"]),
        )
        for one in store.runs()
    ]


def about(store: Store, id_: str) -> list[str]:
    """Return the lines about one run: its report, else how far it is and what its legs say so far."""
    stored = store.run(id_)
    try:
        found = result_of(stored.id, store)
    except KdopsError as error:
        return [f"{error.title}: {error.cause}", *_so_far(stored, store), "", f"remedy: {error.remedy}"]
    together = terminal.together(found)
    return [
        *columns(terminal.rows(found)),
        *(["", *columns(together)] if len(together) > 1 else []),
        "",
        *terminal.verdicts(found),
    ]


def _so_far(stored: StoredRun, store: Store) -> list[str]:
    plan = stored.plan
    legs = {}
    for position, (evidence, samples) in store.legs(stored.id).items():
        if position >= 0:
            arm = plan["arms"][plan["order"][position]]
            legs[position] = analyse(
                arm["name"], position, speculates=bool(arm["speculates"]), samples=samples, evidence=evidence
            )
    found = [one.words for one in estimates(plan, legs)]
    return ["", *found] if found else []


def estimates(plan: Mapping[str, Any], legs: Mapping[int, Leg]) -> list[Estimate]:
    """Return the estimate of each candidate that has a leg, as the baseline has. Pure."""
    sets: Sequence[str] = plan["sets"]
    values: dict[int, list[float]] = {}
    for position, leg in sorted(legs.items()):
        if all(name in leg.stages for name in sets):
            value = mean_log(leg.stages[name].tokens_per_second for name in sets)
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
