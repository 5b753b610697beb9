"""Host: one host over time, its GPUs, commit lengths, settings, unit and findings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.widgets import Static

from kdops.text import printable
from kdops.tui import alarms, columns, words
from kdops.tui.details import Details
from kdops.tui.fleet_view import about
from kdops.tui.history import History, Point
from kdops.tui.plot import plot
from kdops.tui.sample import Sample
from kdops.tui.themes import Colours
from kdops.tui.view import View


class Panel(Static):
    """A titled box."""

    def __init__(self, name: str, title: str, *, classes: str = "") -> None:
        super().__init__(id=name, classes=f"panel {classes}" if title else "")
        self.border_title = title
        self._shown = Text()

    def show(self, text: Text, *, grows: bool = False) -> None:
        """Show other words; nothing is done for the same ones. grows: its height follows them."""
        if text != self._shown or text.spans != self._shown.spans or text.style != self._shown.style:
            self._shown = text
            self.update(text, layout=grows)

    @property
    def room(self) -> tuple[int, int]:
        """Columns and lines inside."""
        return max(self.content_size.width, 1), max(self.content_size.height, 1)


class HostView(VerticalScroll, View):
    """Everything about one host."""

    can_focus = False

    def __init__(self) -> None:
        super().__init__(id="host")

    def compose(self) -> ComposeResult:
        yield Panel("host-head", "")
        with Grid(id="plots"):
            yield Panel("p-speed", "tokens/s")
            yield Panel("p-length", "AL")
            yield Panel("p-step", "step")
        with Grid(id="state"):
            yield Panel("p-commits", "commit length")
            yield Panel("p-kv", "KV pool")
            yield Panel("p-gpus", "GPUs")
        with Grid(id="facts"):
            yield Panel("p-settings", "settings of the running release", classes="tall")
            yield Panel("p-unit", "unit", classes="tall")
            yield Panel("p-findings", "findings", classes="tall")

    def show(
        self,
        sample: Sample,
        history: History,
        details: Details | None,
        findings: Text,
        now: float,
        colours: Colours,
    ) -> None:
        """Draw one host as it is at `now`."""
        self.set_class(not sample.gpus, "no-gpus")
        self.query_one("#host-head", Panel).show(about(sample, now, colours), grows=True)
        points = list(history.points)
        stale = sample.stale(now)
        self._plot("p-speed", points, [p.tokens_per_second for p in points], "tokens/s", 1, colours, stale)
        self._plot("p-length", points, [p.acceptance_length for p in points], "AL", 2, colours, stale)
        times = [None if p.step_time is None else p.step_time * 1000 for p in points]
        self._plot("p-step", points, times, "step, ms", 1, colours, stale)
        self._panel("p-commits").show(self._commits(history, sample, colours))
        self._panel("p-gpus").show(gpus(sample, self._panel("p-gpus").room[0], colours, stale))
        self._panel("p-kv").show(self._kv(sample, colours))
        self._panel("p-settings").show(_settings(details, sample, colours), grows=True)
        self._panel("p-unit").show(_unit(details, sample, colours), grows=True)
        self._panel("p-findings").show(findings, grows=True)

    def move(self, by: int) -> None:
        self.scroll_relative(y=by, animate=False)

    def _panel(self, name: str) -> Panel:
        return self.query_one(f"#{name}", Panel)

    def _plot(
        self, name: str, points: Sequence[Point], values: Sequence[float | None], title: str, digits: int,
        colours: Colours, stale: bool,
    ) -> None:  # fmt: skip
        panel = self._panel(name)
        width, height = panel.room
        drawn = plot(values, width, height)
        if drawn is None:
            panel.border_title, panel.border_subtitle = title, ""
            panel.show(Text("no request has run since this opened", style=colours.dim))
            return
        newest = values[-1]
        span = points[-1].at - points[-min(width, len(points))].at
        panel.border_title = f"{title}  {words.number(newest, digits)}"
        panel.border_subtitle = f"0 to {words.number(drawn.high, digits)}, last {words.age(span)}"
        panel.show(
            Text("\n".join(drawn.lines), style=colours.dim if stale else colours.primary, no_wrap=True)
        )

    def _commits(self, history: History, sample: Sample, colours: Colours) -> Text:
        panel = self._panel("p-commits")
        if sample.status is None:
            return _unknown(sample, colours)
        width, height = panel.room
        recent = history.recent_commits()
        counts, since = (recent, "5 min") if sum(recent) else (sample.commits, "since its start")
        total = sum(counts)
        if not total:
            panel.border_title = "commit length"
            return Text(
                "no steps counted: kdtree-engine counts them with speculation on; other engines do not tell",
                style=colours.dim,
            )
        mean = sum((i + 1) * count for i, count in enumerate(counts)) / total
        panel.border_title = f"commit length, mean {mean:.2f}, {since}"
        return histogram(counts, width, height, colours)

    def _kv(self, sample: Sample, colours: Colours) -> Text:
        width, _ = self._panel("p-kv").room
        if sample.status is None:
            return _unknown(sample, colours)
        if sample.kv_use is None:
            return Text("the engine tells no use of its KV pool", style=colours.dim)
        info = (sample.status.engine.server_info if sample.status and sample.status.engine else None) or {}
        total = info.get("max_total_num_tokens")
        level = alarms.KV_USE.level(sample.kv_use)
        text = Text(words.bar(sample.kv_use, max(width - 6, 4)), style=colours.level(level))
        text.append(f"{sample.kv_use * 100:4.0f} %", style=colours.plain(level))
        if sample.kv_tokens is not None and isinstance(total, int):
            text.append(f"\n{sample.kv_tokens:,} of {total:,} tokens", style=colours.dim)
        requests = sample.row
        text.append(
            f"\nrunning {words.whole(requests.running)}, queued {words.whole(requests.queued)}",
            style=colours.dim,
        )
        return text


def histogram(counts: Sequence[int], width: int, height: int, colours: Colours) -> Text:
    """Return a bar a commit length, with its share of the steps."""
    total, most = sum(counts) or 1, max(counts) or 1
    text = Text(no_wrap=True)
    shown = counts[:height]
    for i, count in enumerate(shown):
        text.append("\n" if i else "")
        text.append(f"{i + 1:2d} ", style=colours.dim)
        text.append(words.bar(count / most, max(width - 8, 4)), style=colours.primary)
        text.append(f"{count / total * 100:4.0f}%", style=colours.text)
    return text


def gpus(sample: Sample, width: int, colours: Colours, stale: bool) -> Text:
    """Return two bars a GPU, busy and memory, with power, temperature, clock and throttle reasons."""
    text = Text(no_wrap=True, overflow="ellipsis")
    if sample.status is None:
        return _unknown(sample, colours)
    if not sample.gpus:
        return Text("no GPU: the host has no nvidia-smi", style=colours.dim)
    each = max((width - 44) // 2, 4)
    for i, gpu in enumerate(sample.gpus):
        busy, memory = gpu.busy, gpu.memory_use
        text.append("\n" if i else "")
        text.append(f"{printable(gpu.index):>2} ", style=colours.dim)
        text.append(words.bar(busy, each), style=colours.dim if stale else colours.ok)
        text.append(f"{words.percent(busy):>6} ")
        text.append(words.bar(memory, each), style=colours.dim if stale else colours.primary)
        text.append(f"{words.percent(memory):>6} ", style=colours.plain(alarms.GPU_MEMORY.level(memory)))
        text.append(f"{words.number(gpu.power, 0):>4} W ")
        text.append(
            f"{words.number(gpu.temperature, 0):>3} °C ",
            style=colours.plain(alarms.TEMPERATURE.level(gpu.temperature)),
        )
        text.append(f"{words.number(gpu.clock, 0):>5} MHz")
        if gpu.throttle:
            text.append(f" {', '.join(gpu.throttle)}", style=colours.level(alarms.throttle_level(gpu)))
    return text


def _unknown(sample: Sample, colours: Colours) -> Text:
    """Return what to show in place of what the host did not tell yet."""
    asked = sample.status is not None or sample.row.state == "connecting"
    return Text("asking the host…" if asked else "not known: the host has not answered", style=colours.dim)


def _settings(details: Details | None, sample: Sample, colours: Colours) -> Text:
    if details is None:
        return _unknown(sample, colours)
    if not details.settings:
        return Text(details.problem or "none", style=colours.dim)
    text = Text(no_wrap=True, overflow="ellipsis")
    if details.problem:
        text.append(f"{printable(details.problem)}\n", style=colours.warning)
    key_width = max(len(row.key) for row in details.settings) - len("engine_")
    for i, row in enumerate(details.settings):
        text.append("\n" if i else "")
        text.append(f"{row.key.removeprefix('engine_'):<{key_width}} ", style=colours.dim)
        text.append(printable(row.value), style=colours.text)
        if row.note:
            text.append(f"  {columns.MARKS['warning']} {printable(row.note)}", style=colours.warning)
        elif row.origin != "default":
            text.append(f"  {printable(row.origin)}", style=colours.dim)
    return text


def _unit(details: Details | None, sample: Sample, colours: Colours) -> Text:
    text = Text(no_wrap=True, overflow="ellipsis")
    for note in sample.row.drift:
        text.append(f"{columns.MARKS['warning']} {printable(note)}\n", style=colours.warning)
    if details is None:
        return text.append(_unknown(sample, colours))
    if details.security:
        text.append(f"{'security':<20} ", style=colours.dim)
        text.append(f"{details.security} (0 closed, 10 open)\n")
    for name, value in details.unit:
        text.append(f"{name.removesuffix('USec'):<20} ", style=colours.dim)
        text.append(printable(_readable(name, value)) + "\n")
    return text


def _readable(name: str, value: str) -> str:
    if not value.isdigit():
        return value
    if name == "MemoryCurrent":
        return f"{int(value) / 2**30:.2f} GiB"
    return f"{int(value) / 1e9:.0f} s" if name == "CPUUsageNSec" else value
