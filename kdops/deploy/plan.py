"""What a deploy would change on a host, and what was changed there by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kdops.deploy.bundle import Bundle
from kdops.deploy.pack import guard_pyz
from kdops.fleet import Effect, effects, strongest

NOT_RUNNING = "the service is not running"
"""The change without which a deploy of the serving release would change nothing."""


@dataclass(frozen=True)
class Plan:
    """release: to be deployed. serving: what serves now. changes, drift: one line for each.

    new_key: the API key differs, so even the serving release must start again. holder: the deploy that is
    open on the host now, with `lease_left`; meanwhile nothing is called drift. effect: the most that any
    changed setting asks for, None where no settings are compared.
    """

    release: str
    serving: str | None
    changes: tuple[str, ...]
    drift: tuple[str, ...]
    new_key: bool = False
    holder: Mapping[str, Any] | None = None
    effect: Effect | None = None

    @property
    def empty(self) -> bool:
        return not self.changes and not self.drift


def plan(bundle: Bundle, report: Mapping[str, Any] | None) -> Plan:
    """Compare `bundle` with the guard's `inspect` report (None: kdops was never on this host). Pure."""
    if report is None:
        return Plan(
            bundle.release, None, ("first deploy: installs the guard, the environment if it is missing",), ()
        )
    committed = report["committed"]
    serving = committed[-1]["release"] if committed else None
    changes, effect = _release(bundle, serving, report)
    holder = report.get("transaction")
    if report["guard"] != hashlib.sha256(guard_pyz()).hexdigest():
        changes.append("the guard on the host is of another kdops version")
    key = bundle.api_key and hashlib.sha256(bundle.api_key.read_bytes()).hexdigest()
    new_key = bundle.files is not None and key != report["api_key"] and key is not None
    if new_key:
        changes.append("the API key")
    drift = () if holder else tuple(report["drift"])
    return Plan(bundle.release, serving, tuple(changes), drift, new_key, holder, effect)


def _release(
    bundle: Bundle, serving: str | None, report: Mapping[str, Any]
) -> tuple[list[str], Effect | None]:
    found, effect = [], None
    if serving != bundle.release:
        found.append(f"release {serving or 'none'} -> {bundle.release}")
        lines, effect = _settings(bundle, report.get("manifest"))
        found += lines
    elif (report.get("unit") or {}).get("active") != "active" and not report.get("transaction"):
        found.append(NOT_RUNNING)
    if bundle.files is not None:
        venv = str(bundle.files.manifest["lock_digest"])[:12]
        if venv not in report["venvs"]:
            found.append(f"Python environment {venv} is built from its lock")
    return found, effect


def _settings(bundle: Bundle, old: Mapping[str, Any] | None) -> tuple[list[str], Effect | None]:
    if bundle.files is None or old is None:
        return [], None
    new = bundle.files.manifest
    before, after = old.get("settings", {}), new["settings"]
    asked = effects(before, after)
    lines = [
        f"  environment: {_names(before, after)} ({asked[key]})"
        if key == "environment"
        else f"  {key}: {before.get(key)!r} -> {after.get(key)!r} ({asked[key]})"
        for key in sorted(asked)
    ]
    replaced = [key for key in ("engine_digest", "lock_digest") if old.get(key) != new[key]]
    lines += [f"  {key} changed ({Effect.REDEPLOY})" for key in replaced]
    return lines, Effect.REDEPLOY if replaced else strongest(asked)


def _names(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Name the variables that differ; their values may be secrets."""
    old, new = (settings.get("environment") or {} for settings in (before, after))
    return ", ".join(
        f"{name} {'is new' if name not in old else 'goes' if name not in new else 'changed'}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    )
