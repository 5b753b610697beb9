"""What the four views have in common: the keys for everywhere mean something in each."""

from __future__ import annotations

from textual.widget import Widget


class View(Widget):
    """One of `keys.VIEWS`, which is its id. Its own keys run its own action_ methods."""

    def move(self, by: int) -> None:
        """Go down by so many lines, or up."""
        raise NotImplementedError

    def page(self, by: int, height: int) -> None:
        """Go down by so many pages of `height` lines, or up."""
        self.move(by * height)

    def edge(self, end: int) -> None:
        """Go to the first (-1) or the last line (1)."""
        self.move(end * 1_000_000)
