"""The dashboard: four views over one feed; every key goes through the table in `keys`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import BindingType
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input, Static

from kdops.fleet import Host
from kdops.host import HostConnection
from kdops.tui import keys
from kdops.tui.ab_view import AbView
from kdops.tui.asking import Asking
from kdops.tui.background import Background
from kdops.tui.dialogs import Help
from kdops.tui.doing import Doing
from kdops.tui.feed import Event, Feed, Heard, Lines, Said, Warned
from kdops.tui.filter_box import FilterBox
from kdops.tui.findings import draw
from kdops.tui.fleet_view import FleetView
from kdops.tui.history import History
from kdops.tui.host_view import HostView
from kdops.tui.journal_view import JournalView
from kdops.tui.measuring import Measuring
from kdops.tui.sample import Sample, build, failed, waiting
from kdops.tui.themes import DARK, THEMES, Colours, colours
from kdops.tui.top import hints, top_line
from kdops.tui.view import View

TICK_S = 0.2
DRAW_S = 1.0
SWITCH_S = 0.0005
"""How long a feed's thread may compute while the screen's waits: Python's 5 ms add up to a slow key."""


class Main(Screen[object]):
    """The screen behind all boxes. A key that no field wants comes here."""

    AUTO_FOCUS = ""

    async def on_key(self, event: events.Key) -> None:
        app = self.app
        if isinstance(app, Dashboard):
            await app.press(event)


class Dashboard(App[None]):
    """kdops tui. hosts: those that can be acted on (none: a recording). write: actions may change them."""

    CSS_PATH = Path(__file__).with_name("app.tcss")
    TITLE = "kdops"
    BINDINGS: ClassVar[list[BindingType]] = []
    COMMAND_PALETTE_BINDING = "ctrl+p"
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-narrow"),
        (150, "-wide"),
        (200, "-huge"),
    ]

    def __init__(
        self,
        feed: Feed,
        hosts: Mapping[str, Host] | None = None,
        *,
        connections: Mapping[str, HostConnection] | None = None,
        write: bool = False,
        changed_keys: Mapping[str, str] | None = None,
        keys_file: str = "",
        theme: str = DARK.name,
        view: str = "fleet",
    ) -> None:
        super().__init__()
        for one in THEMES:
            self.register_theme(one)
        self.feed, self.hosts, self.write = feed, dict(hosts or {}), write
        self.changed_keys, self.keys_file = dict(changed_keys or {}), keys_file
        self.background = Background()
        self.samples: dict[str, Sample] = {name: waiting(name, feed.now()) for name in feed.hosts}
        self.histories = {name: History() for name in feed.hosts}
        self.doing = Doing(self)
        self.measuring = Measuring(self)
        self.asking = Asking(self.background, self.hosts, connections or {})
        self._commands = keys.by_key(self.changed_keys)
        self._first_view, self.first_theme = view, theme
        self._drawn = 0.0
        self._colours: Colours = colours(DARK)

    def compose(self) -> ComposeResult:
        yield Static(id="top")
        with ContentSwitcher(initial=self._first_view, id="views"):
            yield FleetView()
            yield HostView()
            yield JournalView(self._colours)
            yield AbView()
        yield FilterBox()
        yield Static(id="hints")

    def on_mount(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        self.theme = self.first_theme
        self.theme_changed_signal.subscribe(self, lambda _: self._recolour())
        self._recolour()
        self.fleet.chosen = self.feed.hosts[0] if self.feed.hosts else None
        self.feed.start()
        self.set_interval(TICK_S, self.tick)
        self._entered(self._first_view)

    def on_unmount(self) -> None:
        self.feed.stop()

    # What the views share

    @property
    def fleet(self) -> FleetView:
        return self.query_one(FleetView)

    @property
    def journal(self) -> JournalView:
        return self.query_one(JournalView)

    @property
    def view(self) -> str:
        """The view in front."""
        return self.query_one("#views", ContentSwitcher).current or "fleet"

    @property
    def front(self) -> View:
        """The widget of that view."""
        return self.query_one(f"#{self.view}", View)

    @property
    def chosen(self) -> str | None:
        """The host that Host, Journal and the actions are about."""
        return self.fleet.chosen

    @property
    def complete(self) -> bool:
        """Whether every host was heard of, and what the Host view asks for beside that has come."""
        if any(one.row.state == "connecting" for one in self.samples.values()):
            return False
        shown = self.samples.get(self.chosen or "")
        if self.view != "host" or shown is None or shown.status is None:
            return True
        return self.asking.details(shown.host, shown) is not None

    # Time

    def tick(self) -> None:
        """Take in what came; draw the journal at once and the rest once a second."""
        with contextlib.suppress(NoMatches):  # a last tick, while the screen is taken down
            self.background.deliver()
            for event in self.feed.drain():
                self._take(event)
            if self.view == "journal":
                self.journal.work()
            if self.view == "journal" or time.monotonic() - self._drawn >= DRAW_S:
                self.draw()

    def _take(self, event: Event) -> None:
        if isinstance(event, Warned):
            self.notify(event.text, severity="error", timeout=10)
            return
        if isinstance(event, Lines):
            self.journal.add(event.host, event.entries)
            return
        if isinstance(event, Said):
            self.journal.note(event.host, event.text)
            return
        before = self.samples.get(event.host)
        if before is None:
            return
        if isinstance(event, Heard):
            made = build(event.host, event.at, event.document, before, event.usual)
        else:
            made = failed(event.host, event.at, event.error, before)
        self.samples[event.host] = made
        self.histories[event.host].add(made)

    def draw(self) -> None:
        """Draw everything in sight."""
        if not self.screen_stack:
            return
        self._drawn = time.monotonic()
        now, shades, view = self.feed.now(), self._colours, self.view
        base = self.screen_stack[0]
        top = top_line(self.samples, now, self._mode(), view, keys.VIEWS, shades, self.size.width)
        base.query_one("#top", Static).update(top, layout=False)
        own = self.fleet.words if view == "fleet" else ""
        base.query_one("#hints", Static).update(hints(view, self.changed_keys, own, shades), layout=False)
        if view == "fleet":
            self.fleet.show(self.samples, self.histories, now, shades)
        elif view == "host":
            self._draw_host(now, shades)
        elif view == "journal":
            self.journal.show(shades)
        else:
            self.measuring.draw(shades)

    def _draw_host(self, now: float, shades: Colours) -> None:
        name = self.chosen
        if name is None or name not in self.samples:
            return
        shown = self.samples[name]
        key = keys.of("host.diagnose", self.changed_keys)
        found = draw(self.asking.diagnosis(name), name, key, shades)
        details = self.asking.details(name, shown)
        base = self.screen_stack[0].query_one(HostView)
        base.show(shown, self.histories[name], details, found, now, shades)

    def _mode(self) -> Sequence[str]:
        if not self.feed.live:
            return ("replay",)
        doing = [f"▶ {words}" for words in self.doing.running]
        return (*doing, "write" if self.write else "read-only")

    def _recolour(self) -> None:
        self._colours = colours(self.current_theme)
        self.draw()

    # Keys

    def get_default_screen(self) -> Screen[object]:
        return Main()

    async def press(self, event: events.Key) -> None:
        """Do what the key means in the view in front."""
        key = self._commands.get((self.view, event.key))
        if key is None:
            return
        if isinstance(self.focused, Input) and key.name != "leave":
            return
        event.prevent_default()
        event.stop()
        await self._run(key)

    async def _run(self, key: keys.Key) -> None:
        """Run a command: the view in front does its own."""
        await self.run_action(key.action, self.front if key.view else self)
        self.draw()

    def action_view(self, name: str) -> None:
        self.query_one("#views", ContentSwitcher).current = name
        self._entered(name)

    def _entered(self, name: str) -> None:
        if self.chosen is not None and name == "journal":
            self.journal.open(self.chosen)
            self.feed.follow(self.chosen)
        if name == "ab":
            self.measuring.refresh()

    def action_move(self, by: int) -> None:
        self.front.move(by)

    def action_page(self, by: int) -> None:
        self.front.page(by, max(self.size.height - 6, 1))

    def action_edge(self, end: int) -> None:
        self.front.edge(end)

    def action_host(self, by: int) -> None:
        self.fleet.move(by)
        self._entered(self.view)

    def action_open(self) -> None:
        self.action_view("host")

    def action_diagnose(self) -> None:
        if not self.asking.diagnose(self.chosen or ""):
            self.notify("a recording can only be watched", severity="warning")

    def action_filter(self) -> None:
        if isinstance(view := self.front, FleetView | JournalView):
            self.query_one(FilterBox).open(view)

    def on_input_changed(self) -> None:
        self.draw()

    def action_leave(self) -> None:
        box, here = self.query_one(FilterBox), self.journal if self.view == "journal" else self.fleet
        if box.display or here.pattern or self.fleet.pattern:
            box.value = ""
            self.journal.filter_by("")
            self.fleet.filter_by("")
            box.close()
        elif self.view != "fleet":
            self.action_view("fleet")

    def action_next_theme(self) -> None:
        names = [one.name for one in THEMES]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]

    def action_help(self) -> None:
        self.push_screen(Help(self.changed_keys, self.keys_file))

    def action_actions(self) -> None:
        self.doing.menu(self.chosen)

    def action_new_run(self) -> None:
        from kdops.tui.new_run import ask  # it brings scipy

        ask(self, self.chosen)

    def action_open_run(self) -> None:
        self.measuring.refresh()

    async def action_quit(self) -> None:
        self.doing.quit()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every key of this view, and Textual's own (themes, screenshots)."""
        yield from super().get_system_commands(screen)
        for key in keys.KEYS:
            if key.view in ("", self.view) and key.name not in ("quit", "theme", "palette"):
                yield SystemCommand(key.help, f"key {key.keys}", partial(self._run, key))
