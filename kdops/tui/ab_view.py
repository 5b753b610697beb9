"""A/B: past runs, their reports, and the run that is measured now."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.widgets import DataTable, Static

from kdops.text import printable
from kdops.tui.runs import RunLine
from kdops.tui.themes import Colours
from kdops.tui.view import View

EMPTY = (
    "nothing was measured here yet.\n\n"
    "n starts a comparison (with --write), or on the command line:\n"
    "  kdops ab linear ddtree --host HOST          a verdict\n"
    "  kdops ab linear ddtree --host HOST --quick  one start an arm, exploratory\n"
    "  kdops ab linear linear --host HOST          the host's noise floor\n"
)
_HEAD = ("RUN", "HOST", "STATE", "LEGS", "ARMS")
_WIDTHS = (20, 12, 11, 5, 40)


class AbView(Vertical, View):
    """The table of runs above, the chosen one below."""

    def __init__(self) -> None:
        super().__init__(id="ab")
        self._runs: tuple[RunLine, ...] | None = None
        self._report = Text()

    def compose(self) -> ComposeResult:
        table: DataTable[Text] = DataTable(id="runs", cursor_type="row")
        table.can_focus = False
        yield table
        with VerticalScroll(id="report-scroll") as scroll:
            scroll.can_focus = False
            yield Static(id="report")

    def on_mount(self) -> None:
        table = self.query_one("#runs", DataTable)
        for title, width in zip(_HEAD, _WIDTHS, strict=True):
            table.add_column(title, width=width)

    @property
    def chosen(self) -> str | None:
        """The id of the run under the cursor."""
        row = self.query_one("#runs", DataTable).cursor_row
        return self._runs[row].id if self._runs and 0 <= row < len(self._runs) else None

    def show(self, runs: Sequence[RunLine], colours: Colours) -> None:
        """Draw the runs, newest first."""
        table = self.query_one("#runs", DataTable)
        if tuple(runs) != self._runs:
            row = table.cursor_row
            table.clear()
            for one in runs:
                style = {"done": colours.text, "running": colours.ok}.get(one.state, colours.warning)
                cells = (one.id, one.host, one.state, f"{one.done}/{one.legs}", " ".join(one.arms))
                table.add_row(*(Text(printable(cell), style=style) for cell in cells))
            table.move_cursor(row=min(max(row, 0), max(len(runs) - 1, 0)))
            self._runs = tuple(runs)
        table.display = bool(runs)
        if not runs:
            self.query_one("#report", Static).update(Text(EMPTY, style=colours.dim))

    def tell(self, report: Text) -> None:
        """Show words about the chosen run."""
        self.query_one("#report", Static).update(report)

    def move(self, by: int) -> None:
        """Choose another run."""
        table = self.query_one("#runs", DataTable)
        if table.row_count:
            table.move_cursor(row=min(max(table.cursor_row + by, 0), table.row_count - 1))

    def page(self, by: int, height: int) -> None:
        """Scroll what is said of the run."""
        scroll = self.query_one("#report-scroll", VerticalScroll)
        scroll.scroll_relative(y=by * max(scroll.size.height - 2, 1), animate=False)
