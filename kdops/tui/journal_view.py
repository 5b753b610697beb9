"""Journal: follows a host's lines, keeps 100,000 of them, filters without ever blocking."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from dataclasses import replace

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from kdops.host.journal import Entry
from kdops.text import printable
from kdops.tui.journal_lines import MOST, Filter, JournalLines, Mode
from kdops.tui.lines_widget import Lines
from kdops.tui.themes import Colours
from kdops.tui.view import View

PRIORITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
_STEPS = (7, 6, 5, 4, 3)
_CHUNK = 2000
_CHUNK_S = 0.012


class JournalView(Vertical, View):
    """The lines with a status line above."""

    def __init__(self, colours: Colours) -> None:
        super().__init__(id="journal")
        self.host = ""
        self.filter = Filter()
        self.widget = Lines(colours)
        self._of_host: dict[str, JournalLines] = {}
        self._said: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="journal-head")
        yield self.widget

    def open(self, host: str) -> None:
        """Show the journal of another host."""
        if host == self.host:
            return
        self.host = host
        self.widget.lines = self._of(host)
        self.widget.cursor = None
        if self.widget.lines.filter != self.filter:
            self.widget.lines.refilter(self.filter)

    def _of(self, host: str) -> JournalLines:
        return self._of_host.setdefault(host, JournalLines(self.filter))

    def add(self, host: str, entries: tuple[Entry, ...]) -> None:
        """Take in new entries."""
        self._of(host).add(entries)

    def note(self, host: str, text: str) -> None:
        """Keep the last words about the link."""
        self._said[host] = text

    def set_filter(self, new: Filter) -> None:
        """Filter by something else."""
        if new != self.filter:
            self.filter = new
            self.widget.lines.refilter(new)
            self.work()

    @property
    def pattern(self) -> str:
        """What the lines are filtered by."""
        return self.filter.text

    def filter_by(self, text: str) -> str:
        """Filter by another text; return why it is no regular expression, where it must be one."""
        self.set_filter(replace(self.filter, text=text))
        return self.filter.problem()

    def move(self, by: int) -> None:
        self.widget.move(by)

    def edge(self, end: int) -> None:
        self.widget.edge(end)

    def action_pause(self) -> None:
        self.widget.pause()

    def action_scroll(self, by: int) -> None:
        self.widget.scroll_side(by)

    @work(exclusive=True, group="search")
    async def action_error(self, direction: int) -> None:
        found = await self.widget.error(direction)
        self.notify(f"class {found}" if found else "no error in that direction", timeout=2)

    def action_copy(self) -> None:
        entry = self.widget.current()
        if entry is not None:
            self.app.copy_to_clipboard(entry.message)
            self.notify("copied", timeout=2)

    def action_pager(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".log", prefix="kdops-", errors="replace") as file:
            file.write(self.text())
            file.flush()
            with self.app.suspend():
                subprocess.run([*shlex.split(os.environ.get("PAGER") or "less"), file.name], check=False)

    def action_mode(self) -> None:
        """Read the filter as the next of exact, fuzzy, regex."""
        modes = list(Mode)
        self.set_filter(replace(self.filter, mode=modes[(modes.index(self.filter.mode) + 1) % len(modes)]))

    def action_priority(self) -> None:
        """Show less: without debug, without info, …, errors only; then everything again."""
        at = _STEPS.index(self.filter.priority)
        self.set_filter(replace(self.filter, priority=_STEPS[(at + 1) % len(_STEPS)]))

    def work(self) -> None:
        """Go on filtering, for a moment only."""
        lines = self.widget.lines
        stop = time.perf_counter() + _CHUNK_S
        while lines.pending and time.perf_counter() < stop:
            lines.work(_CHUNK)

    def text(self) -> str:
        """Return all matching lines, for a pager."""
        lines = self.widget.lines
        found = (lines.entry(number) for number in lines.matching)
        return "\n".join(printable(entry.message) for entry in found if entry)

    def show(self, colours: Colours) -> None:
        """Draw what came since the last time."""
        self.widget.colours = colours
        self.widget.refresh()
        self.query_one("#journal-head", Static).update(self._head(colours))

    def _head(self, colours: Colours) -> Text:
        lines, shown = self.widget.lines, self.filter
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(printable(self.host) or "no host", style=f"bold {colours.primary}")
        text.append(
            "  following" if self.widget.cursor is None else "  paused",
            style=colours.ok if self.widget.cursor is None else colours.warning,
        )
        text.append(f"  {len(lines):,} of {MOST:,} lines kept", style=colours.dim)
        if shown.text or shown.priority < 7:
            text.append(f"  {len(lines.matching):,} match", style=colours.accent)
        if shown.text:
            problem = shown.problem()
            text.append(f"  {shown.mode} ", style=colours.dim)
            text.append(
                printable(shown.text),
                style=f"bold {colours.critical}" if problem else f"bold {colours.accent}",
            )
            if problem:
                text.append(f" {problem}", style=colours.critical)
        if shown.priority < 7:
            text.append(f"  {PRIORITIES[shown.priority]} and worse", style=colours.dim)
        if lines.pending:
            text.append(f"  filtering {lines.pending:,}…", style=colours.dim)
        if said := self._said.get(self.host):
            text.append(f"  {printable(said)}", style=colours.warning)
        return text
