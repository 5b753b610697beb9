"""A run in the store: its legs, its result and its requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kdops.bench import floor
from kdops.bench.arms import REFERENCE
from kdops.bench.leg import Leg, analyse
from kdops.bench.results import RunResult
from kdops.bench.verdict import REFERENCE_LEG, build
from kdops.errors import KdopsError
from kdops.store import Store, StoredRun

Sample = tuple[str, Mapping[str, Any]]
"""An arm's name and one request of it, as the load client wrote it."""
_PLAN = ("arms", "reference", "order")
_RESULT = ("sets", "quick", "workload")
_REMEDY = "use the kdops that measured it, or measure again"


def planned(id_: str, store: Store, *needed: str) -> StoredRun:
    """Return a stored run whose plan says the arms, their order and what is `needed`. Raises KdopsError."""
    stored = store.run(id_)
    _require(stored, needed)
    return stored


def _require(stored: StoredRun, needed: Sequence[str]) -> None:
    if lacking := {*_PLAN, *needed} - set(stored.plan):
        raise KdopsError(
            f"run {stored.id} cannot be read",
            cause=f"its plan lacks {', '.join(sorted(lacking))}: another version of kdops wrote it",
            remedy=_REMEDY,
        )
    arms, order = stored.plan["arms"], stored.plan["order"]
    if not isinstance(arms, list) or not arms or not all(map(_is_arm, arms)):
        raise _damaged(stored, "arms that are none")
    if not isinstance(order, list) or not all(type(arm) is int and 0 <= arm < len(arms) for arm in order):
        raise _damaged(stored, "an order of other arms")


def _is_arm(told: Any) -> bool:
    if not isinstance(told, dict) or not isinstance(told.get("overrides", {}), dict):
        return False
    return (
        all(isinstance(told.get(key, ""), str) for key in ("name", "profile", "release")) and "name" in told
    )


def _damaged(stored: StoredRun, what: str) -> KdopsError:
    return KdopsError(f"run {stored.id} cannot be read", cause=f"it is stored with {what}", remedy=_REMEDY)


@contextmanager
def readable(stored: StoredRun) -> Iterator[None]:
    """Turn what does not fit kdops's own documents into a KdopsError: a store may be damaged, edited by hand,
    or written by another version.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise _damaged(stored, f"what kdops does not write ({type(error).__name__}: {error})") from error


def positions(plan: Mapping[str, Any]) -> list[int]:
    """Return the position of every leg in the order it runs; the reference first."""
    return [*([REFERENCE_LEG] if plan["reference"] else []), *range(len(plan["order"]))]


def leg(plan: Mapping[str, Any], position: int, measured: tuple[Mapping[str, Any], Sequence[Any]]) -> Leg:
    """Return one leg. measured: its (evidence, samples), as `Store.legs` gives them."""
    evidence, samples = measured
    arm = plan["arms"][plan["order"][position]] if position != REFERENCE_LEG else None
    name, speculates = (arm["name"], bool(arm["speculates"])) if arm else (REFERENCE, False)
    return analyse(name, position, speculates=speculates, samples=samples, evidence=evidence)


def result(stored: StoredRun, store: Store) -> RunResult:
    """Analyse what is stored. Raises KdopsError when legs are missing or something is damaged."""
    _require(stored, ())
    plan, measured = stored.plan, store.legs(stored.id)
    wanted = positions(plan)
    if missing := [position for position in wanted if position not in measured]:
        raise KdopsError(
            f"run {stored.id} is not complete",
            cause=f"{len(missing)} of {len(wanted)} legs are missing",
            remedy=go_on(stored),
        )
    _require(stored, _RESULT)
    if lacking := {"profile", "release", "speculates"} - set.intersection(*map(set, plan["arms"])):
        raise _damaged(stored, f"arms without {', '.join(sorted(lacking))}")
    known = floor.known(stored, store)
    with readable(stored):
        legs = {position: leg(plan, position, measured[position]) for position in wanted}
        for position, arm in enumerate(plan["order"]):
            if REFERENCE_LEG not in legs and not plan["arms"][arm]["speculates"]:
                legs[REFERENCE_LEG] = legs[position]
        return build(stored.id, stored.host, stored.created, plan, legs, known)


def go_on(stored: StoredRun) -> str:
    """Return what to do about a run that nothing measures any more before it is complete."""
    return f"kdops ab resume {stored.id}" if len(stored.plan["arms"]) > 1 else again(stored.host)


def again(host: str) -> str:
    """Return what to do about an incomplete run of one leg: there is nothing to go on from."""
    return f"measure again: kdops bench {host}"


def samples(stored: StoredRun, store: Store) -> list[Sample]:
    """Return every request of a run but the reference's."""
    names, order = [arm["name"] for arm in stored.plan["arms"]], stored.plan["order"]
    return [
        (names[order[position]], sample)
        for position, (_, found) in store.legs(stored.id).items()
        if 0 <= position < len(order)
        for sample in found
    ]
