"""What is compared: profiles, the same one twice, or one with several values of a setting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdops.errors import UsageError

REFERENCE = "autoregressive"
MOST_ARMS = 10
"""More have no drift-balanced order that could be drawn in a moment, and take a host for a day."""


@dataclass(frozen=True)
class Arm:
    """A profile with overrides (engine_* → text). name: unique in the run."""

    name: str
    profile: str
    overrides: Mapping[str, str]


def parse(profiles: Sequence[str], settings: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms of `kdops ab PROFILES --set [arm:]key=v1,v2`; several values make several arms.

    Raises UsageError for a setting that names no arm or has no value, or for more than MOST_ARMS arms.
    """
    by_profile: dict[str, dict[str, list[str]]] = {profile: {} for profile in profiles}
    for text in settings:
        target, key, values = _setting(text)
        if target and target not in by_profile:
            raise UsageError(
                f"--set {text!r} names no arm",
                cause=f"arms: {', '.join(profiles)}",
                remedy="name one of them",
            )
        for profile in [target] if target else by_profile:
            by_profile[profile][key] = values
    many = sum(math.prod(map(len, by_profile[profile].values())) for profile in profiles)
    if many > MOST_ARMS:
        raise UsageError(
            f"{many} arms in one run",
            cause=f"at most {MOST_ARMS} are possible; every further value of a --set is an arm",
            remedy="compare fewer at a time",
        )
    arms: list[Arm] = []
    for profile in profiles:
        options = by_profile[profile]
        for chosen in itertools.product(*options.values()):
            overrides = dict(zip(options, chosen, strict=True))
            several = [
                f"{key.removeprefix('engine_')}={overrides[key]}" for key in options if len(options[key]) > 1
            ]
            name = profile + (f"[{','.join(several)}]" if several else "")
            same = sum(arm.name.split("#")[0] == name for arm in arms)
            arms.append(Arm(f"{name}#{same + 1}" if same else name, profile, overrides))
    return tuple(arms)


def _setting(text: str) -> tuple[str, str, list[str]]:
    head, equals, raw = text.partition("=")
    target, colon, key = head.rpartition(":")
    values = [value for value in raw.split(",") if value]
    if not equals or not key or not values or (colon and not target):
        raise UsageError(
            f"--set {text!r} cannot be read",
            cause="it must be KEY=VALUE or ARM:KEY=VALUE, several values with commas",
            remedy="for example --set ddtree:engine_tree_budget=8,16",
        )
    return target, key, values
