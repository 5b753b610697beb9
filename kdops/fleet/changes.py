"""What a change of settings asks for, and what a running engine must report: both read from the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdops.fleet.settings import PLAIN, SETTINGS, Effect


def effects(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Effect]:
    """Return setting → effect for every setting whose value differs. Both map setting names to JSON values.

    A setting that no longer exists, or did not yet, counts as a restart.
    """
    names = [*SETTINGS, *sorted((before.keys() | after.keys()) - SETTINGS.keys())]
    return {
        name: SETTINGS[name].effect if name in SETTINGS else Effect.RESTART
        for name in names
        if before.get(name) != after.get(name)
    }


def strongest(found: Mapping[str, Effect]) -> Effect:
    """Return the most that any of the changes asks for; NOTHING if there are none."""
    order = list(Effect)
    return max(found.values(), key=order.index, default=Effect.NOTHING)


def applies(name: str, settings: Mapping[str, Any]) -> bool:
    """Say whether the setting `name` has any bearing under the algorithm of `settings`."""
    return settings["algorithm"] in SETTINGS[name].algorithms


def expected_server_info(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `/server_info` of a right engine says: its key → value. Settings left to SGLang are not in
    it.
    """
    expected: dict[str, Any] = {}
    for name, row in SETTINGS.items():
        value = settings[name]
        if row.reported and value is not None and applies(name, settings):
            expected[row.reported] = value
    if settings["algorithm"] == PLAIN:
        expected["speculative_algorithm"] = None
    return expected
