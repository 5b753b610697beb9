"""The dashboard in a terminal of a given size, driven by keys, over recorded and refused hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
import session
from textual import actions
from textual.pilot import Pilot
from textual.widgets import Input

from kdops.tui import keys
from kdops.tui.app import Dashboard
from kdops.tui.feed import Event, Said, Warned
from kdops.tui.start import text_of

pytestmark = pytest.mark.unit


class Script:
    """A feed that says what a test hands it, at a time that stands still."""

    live = True

    def __init__(
        self, events: Sequence[Event] = (), hosts: Sequence[str] = session.FLEET, now: float = 3.0
    ) -> None:
        self.hosts = tuple(hosts)
        self.waiting = list(events)
        self.time = session.BEGUN + now
        self.followed: list[str] = []
        self.stopped = False

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True

    def now(self) -> float:
        return self.time

    def drain(self) -> list[Event]:
        events, self.waiting = self.waiting, []
        return events

    def follow(self, host: str) -> None:
        self.followed.append(host)


def run(
    test: Callable[[Dashboard, Pilot[None]], Awaitable[None]],
    feed: Script,
    size: tuple[int, int] = (120, 30),
    **options,
) -> None:
    """Run `test` in a dashboard of that size."""

    async def main() -> None:
        app = Dashboard(feed, **options)
        async with app.run_test(size=size, notifications=True) as pilot:
            app.tick()
            app.draw()
            await pilot.pause()
            await test(app, pilot)

    asyncio.run(main())


async def shown(app: Dashboard, pilot: Pilot[None]) -> str:
    app.tick()
    app.draw()
    await pilot.pause()
    return text_of(app)


def fleet() -> list[Event]:
    return list(session.events(4))


def row(text: str, host: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(host))


def test_the_fleet_at_a_glance():
    async def test(app, pilot):
        text = await shown(app, pilot)
        assert "● running" in row(text, "b300-0") and "4.27" in row(text, "b300-0")
        assert "▲ weights ~5m" in row(text, "b300-1")
        assert "✖ failed" in row(text, "ct200-1")
        assert "● measuring" in row(text, "lab0") and "paused" in row(text, "lab0")
        assert "never" in row(text, "old-box")
        assert "read-only" in text

    run(test, Script(fleet()), (160, 30))


def test_moving_shows_what_there_is_to_say_of_a_host():
    async def test(app, pilot):
        await pilot.press("G")
        text = await shown(app, pilot)
        assert "no answer from 10.0.0.9 port 22" in text
        assert "remedy: check that the host is up" in text
        await pilot.press("k", "k")
        text = await shown(app, pilot)
        assert "remedy: lower engine_memory_fraction" in text
        await pilot.press("g")
        assert app.chosen == "b300-0"
        await pilot.press("k")
        assert app.chosen == "b300-0", "the ends hold"

    run(test, Script(fleet()))


def test_stale_values_look_stale_and_say_since_when():
    feed = Script(fleet())

    async def test(app, pilot):
        feed.time += 30
        assert "30s" in row(await shown(app, pilot), "b300-0")
        cell = app.fleet.query_one("#hosts").get_cell_at((0, 5))
        assert "italic" in str(cell.style)

    run(test, feed)


def test_filter_sort_reverse_group():
    async def test(app, pilot):
        await pilot.press("slash", *"ct200")
        text = await shown(app, pilot)
        assert "b300-0" not in text and "ct200-1" in text
        await pilot.press("enter", "r")
        text = await shown(app, pilot)
        assert text.index("ct200-1") < text.index("ct200-0")
        await pilot.press("escape")
        assert "b300-0" in await shown(app, pilot)
        await pilot.press("slash", *"nothing at all")
        assert "no host matches" in await shown(app, pilot)
        await pilot.press("escape", "r", "o")
        text = await shown(app, pilot)
        assert "by state" in text
        assert text.index(" ct200-1 ") < text.index(" b300-1 ") < text.index(" b300-0 ")
        await pilot.press("s")
        assert "STATE▲" in await shown(app, pilot)

    run(test, Script(fleet()))


def test_a_letter_typed_into_the_filter_is_no_command():
    async def test(app, pilot):
        await pilot.press("slash", "q", "a", "1")
        assert app.query_one("#filter", Input).value == "qa1"
        assert app.is_running

    run(test, Script(fleet()))


def test_the_host_view_and_its_neighbours():
    async def test(app, pilot):
        await pilot.press("enter")
        text = await shown(app, pilot)
        assert app.view == "host"
        assert "tokens/s  256.6" in text and "commit length, mean 4.17" in text and "1,830 MHz" in text
        await pilot.press("right_square_bracket", "right_square_bracket")
        assert "thermal" in await shown(app, pilot)
        await pilot.press("left_square_bracket", "escape")
        assert (app.view, app.chosen) == ("fleet", "b300-1")

    run(test, Script(fleet()), (200, 50))


def test_the_journal_follows_pauses_and_finds_errors():
    feed = Script(fleet())

    async def test(app, pilot):
        await pilot.press("3")
        assert feed.followed == ["b300-0"]
        text = await shown(app, pilot)
        assert "following" in text and "40 of 100,000 lines kept" in text
        last = app.journal.widget.page()[-1]
        await pilot.press("space")
        feed.waiting.append(session.Lines("b300-0", 0.0, session.entries(500, start=40)))
        text = await shown(app, pilot)
        assert "paused" in text and "540 of" in text
        assert app.journal.widget.page()[-1] == last, "nothing jumps"
        await pilot.press("E")
        await pilot.pause(0.1)
        assert "OutOfMemory" in app.journal.widget.current().message
        await pilot.press("y")
        assert "OutOfMemory" in app.clipboard
        await pilot.press("G")
        assert app.journal.widget.page()[-1] == 539

    run(test, feed)


def test_journal_filters_and_a_wrong_expression():
    async def test(app, pilot):
        await pilot.press("3", "slash", *"batch")
        assert "8 match" in await shown(app, pilot)
        await pilot.press("enter", "p", "p", "p")
        assert "warning and worse" in await shown(app, pilot)
        await pilot.press("p", "p", "m", "m", "slash", "left_parenthesis")
        text = await shown(app, pilot)
        assert "regex" in text and "missing )" in text and "0 match" in text
        assert app.query_one("#filter", Input).has_class("-wrong")
        await pilot.press("escape")
        assert "match" not in await shown(app, pilot)

    run(test, Script(fleet()))


def test_words_about_the_link_and_text_that_would_act_on_the_terminal():
    evil = session.Entry("b=1;m=x", session.BEGUN, "\x1b]0;owned\x07 \x1b[2J", 6)
    events = [*fleet(), Said("b300-0", "b300-0: link lost"), session.Lines("b300-0", 0.0, (evil,))]

    async def test(app, pilot):
        await pilot.press("3")
        text = await shown(app, pilot)
        assert "link lost" in text
        assert r"\x1b]0;owned" in text and "\x1b" not in text

    run(test, Script(events))


def test_a_warning_is_seen_in_every_view():
    async def test(app, pilot):
        assert "recording stopped: disk full" in await shown(app, pilot)

    run(test, Script([*fleet(), Warned("recording stopped: disk full")]))


def test_help_shows_the_keys_in_use():
    async def test(app, pilot):
        await pilot.press("f1")
        text = await shown(app, pilot)
        assert "next-host" in text and "/here/keys.toml" in text
        await pilot.press("escape")
        assert len(app.screen_stack) == 1
        await pilot.press("question_mark")
        assert len(app.screen_stack) == 1, "it was given away"

    run(test, Script(fleet()), changed_keys={"help": "f1"}, keys_file="/here/keys.toml")


def test_every_key_names_something_that_its_view_or_the_dashboard_does():
    async def test(app, pilot):
        for key in keys.KEYS:
            where, name, _ = actions.parse(key.action)
            doer = app.query_one(f"#{key.view}") if key.view and where != "app" else app
            assert callable(getattr(doer, f"action_{name}", None)), key.name

    run(test, Script(fleet()))


def test_themes_and_the_palette():
    async def test(app, pilot):
        assert app.theme == "kdops-dark"
        await pilot.press("t")
        assert app.theme == "kdops-light"
        await pilot.press("t", "t")
        assert app.theme == "kdops-dark"
        await pilot.press("ctrl+p")
        await pilot.pause()
        assert len(app.screen_stack) == 2

    run(test, Script(fleet()))


def test_an_empty_a_b_view_says_how_to_fill_it(tmp_path, monkeypatch):
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path))

    async def test(app, pilot):
        await pilot.press("4")
        await pilot.pause(0.3)
        assert "kdops ab linear ddtree --host HOST" in await shown(app, pilot)
        await pilot.press("n")
        await pilot.pause()
        assert len(app.screen_stack) == 1, "read-only"

    run(test, Script(fleet()))


def test_a_recording_offers_no_actions():
    async def test(app, pilot):
        await pilot.press("a")
        assert len(app.screen_stack) == 1

    run(test, Script(fleet()))


def test_quitting_stops_the_feed_only():
    feed = Script(fleet())

    async def test(app, pilot):
        await pilot.press("q")
        await pilot.pause()

    run(test, feed)
    assert feed.stopped
