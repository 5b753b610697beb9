"""The journal's lines on the screen: only those in sight are drawn."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from datetime import datetime

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from kdops.host.journal import Entry
from kdops.text import printable
from kdops.tui.error_lines import error_class
from kdops.tui.journal_lines import Filter, JournalLines, Mode
from kdops.tui.themes import Colours

_SIDE = 16
_AT_ONCE = 200


class Lines(Widget):
    """cursor: number of the line it is on; None: the newest line is kept in sight. left: columns scrolled."""

    def __init__(self, colours: Colours) -> None:
        super().__init__(id="lines")
        self.lines = JournalLines()
        self.colours = colours
        self.cursor: int | None = None
        self.left = 0
        self._page: list[int] = []
        self._top: int | None = None

    def page(self) -> list[int]:
        """Return the numbers of the lines in sight; with a cursor they move only as far as it needs."""
        height, matching = max(self.size.height, 1), self.lines.matching
        if self.cursor is None:
            self._top = None
            return matching[-height:]
        at = bisect_left(matching, self.cursor)
        top = bisect_left(matching, self._top) if self._top is not None else at - height + 1
        top = max(0, min(max(top, at - height + 1), at, max(0, len(matching) - height)))
        page = matching[top : top + height]
        self._top = page[0] if page else None
        return page

    def move(self, by: int) -> None:
        """Move the cursor by lines; it leaves the newest line upwards, and past the end follows again."""
        matching = self.lines.matching
        if not matching:
            return
        if self.cursor is None:
            if by > 0:
                return
            self._stay()
            at = len(matching)
        else:
            at = bisect_left(matching, self.cursor)
        self.cursor = None if at + by >= len(matching) else matching[max(at + by, 0)]
        self.refresh()

    def edge(self, end: int) -> None:
        """Go to the first line, or to the last and follow."""
        self.cursor = None if end > 0 or not self.lines.matching else self.lines.matching[0]
        self.refresh()

    def pause(self) -> None:
        """Stop with what is in sight, or follow again."""
        if self.cursor is None:
            page = self._stay()
            self.cursor = page[-1] if page else None
        else:
            self.cursor = None
        self.refresh()

    def _stay(self) -> list[int]:
        page = self.page()
        self._top = page[0] if page else None
        return page

    def scroll_side(self, by: int) -> None:
        """Scroll sideways."""
        self.left = max(0, self.left + by * _SIDE)
        self.refresh()

    async def error(self, direction: int) -> str:
        """Go to the next error in that direction; return its class, or "" if there is none.

        The screen goes on meanwhile: 100,000 lines take longer than a key may.
        """
        matching = self.lines.matching
        if self.cursor is None:
            start = len(matching)
        else:
            start = (bisect_right if direction > 0 else bisect_left)(matching, self.cursor)
        numbers = matching[start:] if direction > 0 else matching[:start][::-1]
        for i, number in enumerate(numbers):
            if i % _AT_ONCE == 0:
                await asyncio.sleep(0)
            entry = self.lines.entry(number)
            if entry is not None and (found := error_class(entry)):
                if self.cursor is None:
                    self._stay()
                self.cursor = number
                self.refresh()
                return found
        return ""

    def current(self) -> Entry | None:
        """Return the entry under the cursor, else the newest."""
        matching = self.lines.matching
        if self.cursor is not None:
            return self.lines.entry(self.cursor)
        return self.lines.entry(matching[-1]) if matching else None

    def render_line(self, y: int) -> Strip:
        if y == 0 or not self._page:
            self._page = self.page()
        entry = self.lines.entry(self._page[y]) if y < len(self._page) else None
        if entry is None:
            return Strip.blank(self.size.width, Style(bgcolor=self.colours.background))
        return self._draw(entry, self._page[y] == self.cursor)

    def _draw(self, entry: Entry, chosen: bool) -> Strip:
        width, colours = self.size.width, self.colours
        back = Style(bgcolor=colours.panel if chosen else colours.background, bold=chosen)
        when = datetime.fromtimestamp(entry.time).strftime("%H:%M:%S.%f")[:-3]
        text = entry.message[self.left : self.left + 2 * width].replace("\n", " ⏎ ")
        style = Style(color=self._colour(entry)) + back
        parts = [Segment(f"{when} ", Style(color=colours.dim) + back)]
        parts += marked(
            printable(text), self.lines.filter, style, Style(color=colours.accent, underline=True)
        )
        return Strip(parts).crop(0, width).extend_cell_length(width, back)

    def _colour(self, entry: Entry) -> str:
        if entry.priority <= 3 or error_class(entry):
            return self.colours.critical
        if entry.priority == 4 or "warning" in entry.message[:60].casefold():
            return self.colours.warning
        return self.colours.text if entry.priority <= 6 else self.colours.dim


def marked(text: str, shown: Filter, style: Style, found_style: Style) -> list[Segment]:
    """Split the text so that what the filter found stands out."""
    if not shown.text or shown.mode is Mode.FUZZY or shown.problem():
        return [Segment(text, style)]
    parts, at = [], 0
    for found in shown.pattern.finditer(text):
        if found.end() > found.start():
            parts += [Segment(text[at : found.start()], style), Segment(found[0], style + found_style)]
            at = found.end()
    return [*parts, Segment(text[at:], style)]
