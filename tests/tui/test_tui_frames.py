"""Each view at two sizes in two themes, character for character and colour for colour."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import session
from frames import check
from test_tui_app import Script, run

pytestmark = pytest.mark.unit
THEMES = ("kdops-dark", "kdops-light")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[None]:
    """Clocks on the screen are local ones; measurements come from a file of their own."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path))
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("size", [(80, 24), (240, 60)])
def test_every_view(size):
    async def test(app, pilot):
        await pilot.press("4")
        await pilot.pause(0.3)  # the store is read in a thread
        app.tick()
        for theme in THEMES:
            app.theme = theme
            for view in ("fleet", "host", "journal", "ab"):
                app.action_view(view)
                await pilot.pause()
                app.draw()
                await pilot.pause()
                app.draw()
                await pilot.pause()
                check(app, f"{view}-{size[0]}x{size[1]}-{theme.removeprefix('kdops-')}")
        app.theme = THEMES[0]
        app.action_view("fleet")
        app.action_help()
        await pilot.pause()
        check(app, f"help-{size[0]}x{size[1]}-dark")

    run(test, Script(list(session.events(60)), now=59.0), size)
