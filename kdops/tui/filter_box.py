"""The line in which a person writes what hosts or journal lines must have."""

from __future__ import annotations

from typing import Protocol

from textual.widgets import Input


class Filtered(Protocol):
    """A view that can be filtered."""

    @property
    def pattern(self) -> str:
        """What it is filtered by now."""

    def filter_by(self, text: str) -> str:
        """Filter by `text`; return why that cannot be, else ""."""


class FilterBox(Input):
    """Shown while it is open; each change filters at once."""

    def __init__(self) -> None:
        super().__init__(id="filter", placeholder="filter", compact=True)
        self._view: Filtered | None = None

    def on_mount(self) -> None:
        self.display = False

    def open(self, view: Filtered) -> None:
        """Let the filter of `view` be written."""
        self._view = view
        self.value = view.pattern
        self.display = True
        self.focus()

    def close(self) -> None:
        """Go away; the filter holds."""
        self.display = False
        self.screen.set_focus(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        if self.display and self._view is not None:
            self.set_class(bool(self._view.filter_by(event.value)), "-wrong")

    def on_input_submitted(self) -> None:
        self.close()
