"""The boxes in front of the views: a list to choose from, a question, the progress of an action, help."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import OptionList, RichLog, Static
from textual.widgets.option_list import Option

from kdops.deploy.progress import Now, line
from kdops.text import printable
from kdops.tui.keys import KEYS, VIEWS
from kdops.tui.top import all_keys

_CLOSE = Binding("escape", "dismiss(None)", "close", show=False)


class Choice(NamedTuple):
    """One of a list. why_not: why it cannot be chosen, else ""."""

    id: str
    words: str
    why_not: str = ""


class Choose(ModalScreen[str | None]):
    """A list; gives the id of what was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _CLOSE,
        Binding("q", "dismiss(None)", show=False),
        Binding("j", "down", show=False),
        Binding("k", "up", show=False),
    ]

    def __init__(self, title: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title, self._choices = title, choices

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = printable(self._title)
            options = [
                Option(Text(f"{words}  ({why})" if why else words), id=id_, disabled=bool(why))
                for id_, words, why in self._choices
            ]
            yield OptionList(*options)
            yield Static("enter chooses, esc closes", classes="dim")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def action_down(self) -> None:
        self.query_one(OptionList).action_cursor_down()

    def action_up(self) -> None:
        self.query_one(OptionList).action_cursor_up()


class Ask(ModalScreen[bool]):
    """A question that names host and effect, with the plan and the command; only `y` says yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape,q", "dismiss(False)", "no"),
    ]

    def __init__(self, title: str, effect: str, command: str, plan: Sequence[str]) -> None:
        super().__init__()
        self._title, self.effect, self.command, self.plan = title, effect, command, plan

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = printable(self._title)
            with VerticalScroll(classes="plan"):
                for text in self.plan:
                    yield Static(Text(printable(text)))
            yield Static(Text(f"$ {printable(self.command)}"), classes="command")
            yield Static(Text(printable(self.effect)), classes="effect")
            yield Static(Text("y yes   n no"), classes="dim")


class Tell(ModalScreen[None]):
    """Words that stay until they are read: why something cannot be done."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter", "dismiss(None)", "close")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = printable(self._title)
            with VerticalScroll(classes="plan"):
                for line in self._text.split("\n"):
                    yield Static(Text(printable(line)))
            yield Static("esc closes", classes="dim")


class Running(ModalScreen[None]):
    """The progress of one action: the phases of the CLI's bar and what stays above it. esc hides it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _CLOSE,
        Binding("q", "dismiss(None)", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
    ]

    def __init__(self, title: str, command: str) -> None:
        super().__init__()
        self._title, self._command = title, command
        self._begun = time.monotonic()
        self._now: Now | None = None
        self._at = self._begun
        self.said: list[tuple[str, str]] = []
        self.ended = False

    @property
    def words(self) -> str:
        """What goes on, in words."""
        return self._title

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide") as box:
            box.border_title = printable(self._title)
            yield Static(Text(f"$ {printable(self._command)}"), classes="command")
            yield RichLog(wrap=True, markup=False, highlight=False)
            yield Static(id="phase")
            yield Static("esc hides this; the action goes on", classes="dim", id="hint")

    def on_mount(self) -> None:
        for text, style in self.said:
            self._write(text, style)
        self.set_interval(0.25, self._draw)

    def note(self, text: str, style: str = "") -> None:
        """Add a line that stays."""
        self.said.append((text, style))
        if self.is_mounted:
            self._write(text, style)

    def progress(self, now: Now) -> None:
        """Show what happens now."""
        self._now, self._at = now, time.monotonic()

    def end(self, text: str, *, ok: bool) -> None:
        """Show how it ended."""
        self.ended = True
        self._now = None
        self.note(text, "bold green" if ok else "bold red")
        if self.is_mounted:
            self.query_one("#phase", Static).update("")
            self.query_one("#hint", Static).update("esc closes, j and k scroll")

    def action_scroll(self, by: int) -> None:
        self.query_one(RichLog).scroll_relative(y=by, animate=False)

    def _write(self, text: str, style: str) -> None:
        self.query_one(RichLog).write(Text(printable(text), style=style))

    def _draw(self) -> None:
        if self._now is not None:
            seconds = time.monotonic()
            parts = line(self._now, seconds - self._begun, seconds - self._at)
            told = Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
            self.query_one("#phase", Static).update(told)
        elif not self.ended:
            self.query_one("#phase", Static).update(f"{time.monotonic() - self._begun:4.0f} s")


class Help(ModalScreen[None]):
    """Every key, by view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "dismiss(None)", "close"),
        Binding("j,down", "scroll(1)", show=False),
        Binding("k,up", "scroll(-1)", show=False),
    ]

    def __init__(self, changed: Mapping[str, str], file: str) -> None:
        super().__init__()
        self._changed, self._file = changed, file

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog wide") as box:
            box.border_title = "keys"
            with VerticalScroll(classes="plan"):
                yield Static(self._text())
            yield Static(Text(f"other keys: {self._file}"), classes="dim")

    def _text(self) -> Text:
        text = Text()
        for view in ("", *VIEWS):
            title = {"": "everywhere", "ab": "A/B"}.get(view, view)
            text.append(f"{title}\n", style="bold")
            for key in KEYS:
                if key.view == view:
                    text.append(f"  {all_keys(key, self._changed):<16} {key.help:<36} {key.name}\n")
        return text

    def action_scroll(self, by: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False)
