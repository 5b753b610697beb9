"""Defaults, inventory, profile, --set: the four layers of a setting put together and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kdops.fleet import settings, values
from kdops.fleet.crosscheck import contradictions
from kdops.fleet.model import COMMAND_LINE, DEFAULT, Host, Origin
from kdops.fleet.problems import Problem, nearest, refuse
from kdops.fleet.profiles import BUILT_IN, DEFAULT_PROFILE, SameAs
from kdops.fleet.settings import NAME, REQUIRED, SETTINGS, EngineConfig

_PREFIX = "engine_"
_OTHER = (
    "engine_profile",
    "engine_profiles",
    "engine_model_facts",
    "engine_draft_facts",
    "engine_adopted_unit",
)
_HOST = ("gpu", "ansible_", "kdops_")
"""How the variables begin that kdops reads of a host beside its engine's settings."""
_TITLE = "the settings of {} under profile {!r} are not usable"
_Layer = dict[str, tuple[Any, Origin]]


def profile_names(host: Host) -> tuple[str, ...]:
    """Return the names of all profiles of `host`, built-in ones first."""
    own = host.variables.get("engine_profiles") or {}
    return tuple(dict.fromkeys([*BUILT_IN, *(own if isinstance(own, dict) else {})]))


def engine_config(
    host: Host, profile: str | None = None, overrides: Mapping[str, Any] | None = None
) -> EngineConfig:
    """Return the validated settings of `host` under `profile` (default: its `engine_profile`, else linear).

    overrides: key (with or without `engine_`) → value; text is read as on the command line (`--set
    key=text`). Raises UsageError that names every wrong key, type, range and contradiction with file, line
    and what is allowed.
    """
    config = typed_config(host, profile, overrides)
    if problems := contradictions(config, host):
        raise refuse(_TITLE.format(host.name, config.profile), problems)
    return config


def typed_config(
    host: Host, profile: str | None = None, overrides: Mapping[str, Any] | None = None
) -> EngineConfig:
    """Return settings that are each right; whether they go together is `crosscheck.contradictions`' to say.

    Raises UsageError as `engine_config` does for wrong keys, types and ranges.
    """
    problems: list[Problem] = []
    name, name_origin = _profile(host, profile, problems)
    unknown = bool(problems)
    layers = (
        {key: (settings.default(key), DEFAULT) for key in SETTINGS},
        {"service": (host.name, DEFAULT)},
        dict(_inventory(host, problems)),
        dict(_profile_layer(host, name, problems)),
        dict(_command_line(host, overrides or {}, problems)),
    )
    merged: _Layer = {}
    for layer in layers:
        merged.update(layer)
    found: dict[str, Any] = {}
    for key, (value, origin) in merged.items():
        if value is REQUIRED and key == "algorithm" and unknown:
            continue
        if value is REQUIRED:
            text = f"engine_{key} is not set; {SETTINGS[key].doc}"
            where = name_origin if key == "algorithm" else Origin(str(host.inventory))
            problems.append(Problem(where, text, settable=True))
            continue
        if isinstance(value, SameAs):
            value = merged[value.setting][0]
        found[key] = _parsed(key, value, origin, problems)
    if problems:
        raise refuse(_TITLE.format(host.name, name), problems)
    origins = {key: origin for key, (_, origin) in merged.items()}
    return EngineConfig(profile=name, origins=origins, **found)


def _parsed(key: str, value: Any, origin: Origin, problems: list[Problem], *, used: bool = True) -> Any:
    try:
        return values.parse(key, value)
    except values.Wrong as wrong:
        settable = used and key != "service" and origin is not COMMAND_LINE
        problems.append(Problem(origin, f"engine_{key}: {wrong}", settable=settable))


def _profile(host: Host, asked: str | None, problems: list[Problem]) -> tuple[str, Origin]:
    written = host.variables.get("engine_profile")
    name, origin = (
        (asked, Origin("--profile"))
        if asked is not None
        else (written, host.origins.get("engine_profile", DEFAULT))
        if written is not None
        else (DEFAULT_PROFILE, DEFAULT)
    )
    known = profile_names(host)
    if name not in known:
        text = f"unknown profile {name!r}{nearest(str(name), known)}; known: {', '.join(known)}"
        problems.append(Problem(origin, text))
    return str(name), origin


def _inventory(host: Host, problems: list[Problem]) -> Iterator[tuple[str, tuple[Any, Origin]]]:
    for variable, value in host.variables.items():
        if variable.startswith(_PREFIX) and variable not in _OTHER:
            origin = host.origins.get(variable, Origin(str(host.inventory)))
            if key := _known(variable, origin, problems):
                yield key, (value, origin)


def _profile_layer(
    host: Host, name: str, problems: list[Problem]
) -> Iterator[tuple[str, tuple[Any, Origin]]]:
    for key, value in BUILT_IN.get(name, {}).items():
        yield key, (value, Origin(f"profile {name}"))
    written = host.variables.get("engine_profiles")
    base = host.origins.get("engine_profiles", Origin(str(host.inventory)))
    if written is not None and not isinstance(written, dict):
        problems.append(Problem(base, "engine_profiles: must map profile names to engine_* overrides"))
        return
    for profile, entries in (written or {}).items():
        where = host.origins.get(f"engine_profiles.{profile}", base)
        if not re.fullmatch(NAME, profile):
            text = f"profile name {profile[:60]!r} is not allowed; it must match {NAME}"
            problems.append(Problem(where, text))
        if not isinstance(entries, dict):
            problems.append(Problem(where, f"profile {profile!r}: must be a mapping of engine_* overrides"))
            continue
        for variable, value in entries.items():
            origin = host.origins.get(f"engine_profiles.{profile}.{variable}", where)
            known = _known(variable, origin, problems, of_host=False)
            if known and profile == name:
                yield known, (value, origin)
            elif known:
                _parsed(known, value, origin, problems, used=False)


def _command_line(
    host: Host, overrides: Mapping[str, Any], problems: list[Problem]
) -> Iterator[tuple[str, tuple[Any, Origin]]]:
    for variable, value in overrides.items():
        if variable.startswith(_HOST):
            place = host.origins.get(variable, Origin(str(host.inventory)))
            text = f"{variable} describes the host and is no setting; write it there: {place}"
            problems.append(Problem(COMMAND_LINE, text))
            continue
        full = variable if variable.startswith(_PREFIX) else _PREFIX + variable
        key = _known(full, COMMAND_LINE, problems, of_host=False)
        if key is None:
            continue
        try:
            parsed = values.from_text(key, value) if isinstance(value, str) else value
        except values.Wrong as wrong:
            problems.append(Problem(COMMAND_LINE, f"engine_{key}: {wrong}"))
            continue
        yield key, (parsed, COMMAND_LINE)


def _known(variable: str, origin: Origin, problems: list[Problem], *, of_host: bool = True) -> str | None:
    """Return the setting that `variable` names, or note the problem. A host has one service, so its name is
    refused in profiles and --set (of_host false)."""
    key = variable.removeprefix(_PREFIX)
    if key == "service" and not of_host:
        text = f"{variable} names the host's only service; set it for the host, in the inventory"
        problems.append(Problem(origin, text))
        return None
    if variable.startswith(_PREFIX) and key in SETTINGS:
        return key
    if variable in _OTHER:
        problems.append(
            Problem(origin, f"{variable} is no setting of an engine; set it for the host, in the inventory")
        )
        return None
    known = [_PREFIX + name for name in SETTINGS]
    problems.append(Problem(origin, f"unknown key {variable!r}{nearest(variable, known + list(_OTHER))}"))
    return None
