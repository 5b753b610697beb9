"""The A/B view's work: read the store, start a comparison as its own process, show how it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from kdops.store import Store
from kdops.text import printable
from kdops.tui.ab_view import AbView
from kdops.tui.background import words
from kdops.tui.runs import RunLine, about, listing
from kdops.tui.themes import Colours

if TYPE_CHECKING:
    from kdops.tui.app import Dashboard


class Measuring:
    """Reads the measurements in a thread; what it found is drawn by the view."""

    def __init__(self, app: Dashboard) -> None:
        self._app = app
        self._runs: list[RunLine] = []
        self._about: tuple[RunLine | None, list[str]] = (None, [])
        self._busy = False

    @property
    def said(self) -> list[str]:
        """The lines about the chosen run."""
        return self._about[1]

    def refresh(self) -> None:
        """Read the list and the chosen run again."""
        if self._busy:
            return
        self._busy = True
        chosen, (before, said) = self._app.screen_stack[0].query_one(AbView).chosen, self._about

        def read() -> tuple[list[RunLine], RunLine | None, list[str]]:
            store = Store()
            try:
                runs = listing(store)
                line = next((one for one in runs if one.id == chosen), runs[0] if runs else None)
                if line is None or line == before:  # a report is worked out once, not every second
                    return runs, line, said if line else []
                return runs, line, about(store, line.id)
            finally:
                store.close()

        def then(found: tuple[list[RunLine], RunLine | None, list[str]] | Exception) -> None:
            self._busy = False
            if isinstance(found, Exception):
                self._about = (None, [words(found)])
            else:
                self._runs, self._about = found[0], found[1:]

        self._app.background.run(read, then)

    def draw(self, shades: Colours) -> None:
        """Draw what was read last, and read again."""
        view = self._app.screen_stack[0].query_one(AbView)
        view.show(self._runs, shades)
        if self._about[1]:
            view.tell(_coloured(self._about[1], shades))
        self.refresh()


def _coloured(lines: list[str], shades: Colours) -> Text:
    text = Text()
    for line in lines:
        style = (
            shades.critical
            if "CHECK FAILED" in line
            else shades.warning
            if "not a verdict" in line
            else shades.text
        )
        text.append(printable(line) + "\n", style=style)
    return text
