"""Fleet: a row a host, and below it what there is to say about the chosen one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Static

from kdops.text import printable
from kdops.tui import columns as cols
from kdops.tui import words
from kdops.tui.history import History
from kdops.tui.order import GROUPS, Order, arrange
from kdops.tui.plot import plot
from kdops.tui.sample import Sample
from kdops.tui.themes import Colours
from kdops.tui.view import View

_TALL, _PLOT_LINES = 36, 6


class FleetView(Vertical, View):
    """The table of hosts."""

    def __init__(self) -> None:
        super().__init__(id="fleet")
        self.order = Order()
        self.chosen: str | None = None
        self._shown: list[str] = []
        self._columns: tuple[str, ...] = ()
        self._cells: list[list[Text]] = []

    def compose(self) -> ComposeResult:
        table: DataTable[Text] = DataTable(
            id="hosts", cursor_type="row", zebra_stripes=False, cell_padding=1, show_cursor=True
        )
        table.can_focus = False
        yield table
        yield Static(id="about")

    def show(
        self, samples: Mapping[str, Sample], histories: Mapping[str, History], now: float, colours: Colours
    ) -> None:
        """Draw the samples as they are at `now`."""
        width = self.app.size.width
        columns = cols.visible(width, self.order.group.upper())
        self._head(columns, width)
        table = self.query_one("#hosts", DataTable)
        shown = arrange(samples, columns, self.order)
        rows = [self._row(sample, columns, now, colours) for sample in shown]
        names = [sample.host for sample in shown]
        if names != self._shown or len(rows) != table.row_count:
            table.clear()
            for cells in rows:
                table.add_row(*cells)
            self._shown = names
            self._move_to_chosen(table)
        else:
            for y, cells in enumerate(rows):
                for x, cell in enumerate(cells):
                    if (
                        cell != self._cells[y][x]
                        or cell.spans != self._cells[y][x].spans
                        or cell.style != self._cells[y][x].style
                    ):
                        table.update_cell_at(Coordinate(y, x), cell)
        self._cells = rows
        self._about(samples, histories, now, colours)

    def _head(self, columns: list[cols.Column], width: int) -> None:
        mark = "▼" if self.order.reverse else "▲"
        titles = tuple(
            f"{c.name}{mark}" if c.name == self.order.column else c.name for c in columns
        )  # the age is always last
        key = (*titles, str(width))
        if key == self._columns:
            return
        table = self.query_one("#hosts", DataTable)
        table.clear(columns=True)
        self._shown = []
        for column, title in zip(columns, titles, strict=True):
            label = Text(title, justify="right" if column.right else "left", no_wrap=True)
            label.align("right" if column.right else "left", max(column.width, len(title)))
            table.add_column(label, width=max(column.width, len(title)))
        age = Text("AGE")
        age.align("right", cols.AGE_WIDTH)
        table.add_column(age, width=cols.AGE_WIDTH)
        self._columns = key

    def _row(self, sample: Sample, columns: list[cols.Column], now: float, colours: Colours) -> list[Text]:
        stale = sample.stale(now)
        cells = []
        for column in columns:
            live = column.name in ("HOST", "STATE", "ALARM")
            drawn = cols.draw(column.cell(sample), column.width, column.right, colours, stale and not live)
            cells.append(drawn)
        cells.append(cols.draw(cols.age_cell(sample, now), cols.AGE_WIDTH, True, colours, False))
        return cells

    def _about(
        self, samples: Mapping[str, Sample], histories: Mapping[str, History], now: float, colours: Colours
    ) -> None:
        sample = samples.get(self.chosen or "")
        if sample is None:
            text = Text("no host matches; esc clears the filter", style=colours.dim)
        else:
            text = about(sample, now, colours)
            if self.app.size.height >= _TALL:
                text.append_text(self._speed(histories[sample.host], sample.stale(now), colours))
        self.query_one("#about", Static).update(text)

    def _speed(self, history: History, stale: bool, colours: Colours) -> Text:
        """Return the chosen host's tokens/s over time, for screens with room."""
        values = [point.tokens_per_second for point in history.points]
        drawn = plot(values, max(self.app.size.width - 4, 1), _PLOT_LINES)
        if drawn is None:
            return Text()
        text = Text(f"\ntokens/s, 0 to {words.number(drawn.high)}\n", style=colours.dim)
        return text.append("\n".join(drawn.lines), style=colours.dim if stale else colours.primary)

    def _move_to_chosen(self, table: DataTable[Text]) -> None:
        if self.chosen not in self._shown:
            self.chosen = self._shown[0] if self._shown else None
        if self.chosen is not None:
            table.move_cursor(row=self._shown.index(self.chosen))

    def move(self, by: int) -> None:
        """Choose another row; the ends hold."""
        if self._shown:
            at = self._shown.index(self.chosen) if self.chosen in self._shown else 0
            self.choose(self._shown[min(max(at + by, 0), len(self._shown) - 1)])

    def choose(self, host: str) -> None:
        """Choose a host by name."""
        self.chosen = host
        self._move_to_chosen(self.query_one("#hosts", DataTable))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if 0 <= event.cursor_row < len(self._shown):
            self.chosen = self._shown[event.cursor_row]

    def action_sort(self) -> None:
        """Sort by the column after the present one."""
        names = [column.name for column in cols.visible(self.app.size.width)]
        at = names.index(self.order.column) if self.order.column in names else -1
        self.order = replace(self.order, column=names[(at + 1) % len(names)])

    def action_reverse(self) -> None:
        """Turn the order round."""
        self.order = replace(self.order, reverse=not self.order.reverse)

    def action_group(self) -> None:
        """Group by the next of GROUPS."""
        at = GROUPS.index(self.order.group)
        self.order = replace(self.order, group=GROUPS[(at + 1) % len(GROUPS)])

    @property
    def pattern(self) -> str:
        """The words that a host must have."""
        return self.order.pattern

    def filter_by(self, text: str) -> str:
        """Show only hosts with these words."""
        self.order = replace(self.order, pattern=text)
        return ""

    @property
    def words(self) -> str:
        """Filter and group, for the status line."""
        parts = [f"/{self.order.pattern}"] if self.order.pattern else []
        return " ".join([*parts, *([f"by {self.order.group}"] if self.order.group else [])])


def about(sample: Sample, now: float, colours: Colours) -> Text:
    """Return what there is to say of one host: what serves, the alarm, notes and remedies."""
    shown = sample.row
    text = Text(no_wrap=False)
    text.append(printable(sample.host), style=f"bold {colours.primary}")
    parts = [cols.state_words(sample), shown.profile, shown.release]
    text.append("  " + "  ".join(printable(part) for part in parts if part))
    age = sample.age(now)
    if sample.stale(now) and age is not None:
        text.append(f"  last heard {age:.0f} s ago", style=colours.critical)
    if sample.alarm:
        text.append(
            f"\n{cols.MARKS[sample.alarm.level]} {printable(sample.alarm.text)}",
            colours.level(sample.alarm.level),
        )
    for note in shown.notes:
        if sample.alarm is None or note != sample.alarm.text:
            text.append(
                f"\n  {printable(note)}", style=colours.accent if note.startswith("remedy") else colours.dim
            )
    return text
