"""Put a dashboard together, and draw one frame of it without a terminal."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from kdops.errors import UsageError
from kdops.fleet import Host
from kdops.fleet.problems import nearest
from kdops.tui import keys
from kdops.tui.app import Dashboard
from kdops.tui.feed import Feed
from kdops.tui.live import Better, Live
from kdops.tui.recording import Recorder
from kdops.tui.replay import Replay
from kdops.tui.themes import DARK

ONCE_S = 8.0
_WIDEST = 1000
"""Of a frame, in cells either way: $COLUMNS and $LINES may say anything."""
_THEME = "KDOPS_THEME"


def live(
    hosts: Sequence[Host], interval: float, record: Path | None, better: Better, *, write: bool, view: str,
    theme: str | None,
) -> Dashboard:  # fmt: skip
    """Return the dashboard of real hosts, each given once. better: as `Live` takes it.

    Raises UsageError for a wrong host, view, theme or key.
    """
    by_name = {host.name: host for host in hosts}
    if not hosts or len(hosts) != len(by_name):
        raise UsageError(
            "no host to watch" if not hosts else "two inventories have hosts of one name",
            cause="the inventories hold none" if not hosts else ", ".join(sorted(by_name)),
            remedy="name an inventory with -i",
        )
    recorder = Recorder(record, tuple(by_name)) if record else None
    feed = Live(tuple(by_name.values()), interval, recorder, better=better)
    return _dashboard(feed, by_name, feed, write=write, view=view, theme=theme)


def recorded(path: Path, speed: float, *, view: str, theme: str | None) -> Dashboard:
    """Return the dashboard that plays a recording. Raises UsageError."""
    return _dashboard(Replay(path, speed), {}, None, write=False, view=view, theme=theme)


def _dashboard(
    feed: Feed, hosts: dict[str, Host], source: Live | None, *, write: bool, view: str, theme: str | None
) -> Dashboard:
    if view not in keys.VIEWS:
        raise UsageError(
            f"no view is named {view!r}{nearest(view, keys.VIEWS)}",
            cause=f"known: {', '.join(keys.VIEWS)}",
            remedy="name one of them",
        )
    file = keys.default_file()
    dashboard = Dashboard(
        feed,
        hosts,
        connections=source.connections if source else {},
        write=write,
        changed_keys=keys.load(file),
        keys_file=str(file),
        theme=DARK.name,
        view=view,
    )
    wanted = theme or os.environ.get(_THEME) or DARK.name
    if wanted not in dashboard.available_themes:
        known = sorted(dashboard.available_themes)
        raise UsageError(
            f"no theme is named {wanted!r}{nearest(wanted, known)}",
            cause=f"known: {', '.join(known)}",
            remedy="name one of them",
        )
    dashboard.first_theme = wanted
    return dashboard


def settle() -> None:
    """Leave what is loaded by now out of the garbage collector's passes: each holds up a key."""
    gc.collect()
    gc.freeze()


def frame(dashboard: Dashboard, size: tuple[int, int] | None = None) -> str:
    """Return one frame as text, once all it shows was heard or ONCE_S seconds have passed."""
    columns, lines = size or shutil.get_terminal_size((120, 40))
    return asyncio.run(_frame(dashboard, (min(columns, _WIDEST), min(lines, _WIDEST))))


async def _frame(dashboard: Dashboard, size: tuple[int, int]) -> str:
    async with dashboard.run_test(size=size) as pilot:
        stop = time.monotonic() + ONCE_S
        while time.monotonic() < stop:
            await pilot.pause(0.1)
            dashboard.tick()
            if dashboard.complete:
                break
        dashboard.draw()
        await pilot.pause()
        return text_of(dashboard)


def text_of(dashboard: Dashboard) -> str:
    """Return the screen as it is now, as plain text."""
    lines = dashboard.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in lines)
