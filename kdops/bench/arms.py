"""What is compared: profiles, the same one twice, or one with several values of a setting."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kdops.errors import UsageError

REFERENCE = "autoregressive"


@dataclass(frozen=True)
class Arm:
    """A profile with overrides (engine_* → text). name: unique in the run."""

    name: str
    profile: str
    overrides: Mapping[str, str]


def parse(profiles: Sequence[str], settings: Sequence[str]) -> tuple[Arm, ...]:
    """Return the arms of `kdops ab PROFILES --set [arm:]key=v1,v2`; several values make several arms.

    Raises UsageError for a setting that names no arm, has no value, or leaves fewer than one arm.
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
