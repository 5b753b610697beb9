"""Drift: what on this host differs from the committed release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kdops.errors import KdopsError
from kdops.guard import release, smoke
from kdops.guard.context import Context
from kdops.guard.layout import by_hand
from kdops.guard.model import State


def drift(ctx: Context, state: State) -> list[str]:
    """Return a line per difference: unit bytes, the link `current`, drop-ins, daemon-reload, edited files,
    effective settings.
    """
    serving = state.serving
    if serving is None or serving.adopted:
        return []
    try:
        good = release.load(ctx.layout, serving.release)
    except KdopsError as error:
        return [error.title]
    unit = ctx.systemd.show(good.unit)
    found = good.damage()
    installed = ctx.layout.units / good.unit
    if not installed.is_file():
        found.append(f"{installed} is missing")
    elif installed.read_bytes() != (good.path / good.unit).read_bytes():
        found.append(f"{installed} was edited by hand")
    if (current := release.current(ctx.layout)) != good.id:
        found.append(f"{ctx.layout.current} points to {current or 'nothing'}")
    found += [f"drop-in {path} (systemctl edit)" for path in map(Path, unit.dropins.split()) if by_hand(path)]
    if unit.need_reload == "yes":
        found.append("systemd has not read the unit as it is on disk (systemctl daemon-reload)")
    if unit.enabled not in ("enabled", ""):
        found.append(f"the service does not start at boot ({unit.enabled})")
    if unit.active == "active":
        found += effective(ctx, good)
    return found


def effective(ctx: Context, of: release.Release) -> list[str]:
    """Return the settings in which the running engine differs from the release."""
    expected: dict[str, Any] = of.manifest["expected"]
    try:
        actual = ctx.inspect(ctx.endpoint(of, 5.0))
    except (OSError, ValueError) as error:
        return [f"the engine does not tell its settings: {type(error).__name__}: {error}"]
    return smoke.compare(expected, actual)
