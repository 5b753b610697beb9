"""The columns of the fleet table: from a sample to a cell, and the screen from which it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from rich.text import Text

from kdops.host.status import GpuSample
from kdops.text import printable
from kdops.tui import alarms, words
from kdops.tui.alarms import Level
from kdops.tui.sample import Sample
from kdops.tui.themes import Colours

MARKS: dict[Level, str] = {"ok": "●", "warning": "▲", "critical": "✖"}
"""A level as a shape, for eyes and terminals without colour."""
_memory: Callable[[GpuSample], float | None] = attrgetter("memory_use")


@dataclass(frozen=True)
class Column:
    """cell: text and level; key: what it sorts by (None last); since: least screen width."""

    name: str
    width: int
    cell: Callable[[Sample], tuple[str, Level]]
    key: Callable[[Sample], float | str | None]
    since: int = 0
    right: bool = False


def state_words(sample: Sample) -> str:
    """Return the state with phase and ETA while it loads."""
    shown = sample.row
    if sample.paused:
        return "measuring"
    if shown.state == "loading":
        told = sample.status.unit.told.get("phase", "") if sample.status else ""
        left = "" if sample.eta is None else f" ~{words.short(sample.eta)}" if sample.eta >= 1 else " late"
        return f"{told or 'loading'}{left}"
    return shown.state


def _state(sample: Sample) -> tuple[str, Level]:
    level: Level = "ok" if sample.paused else alarms.state_level(sample.row.state)
    return f"{MARKS[level]} {state_words(sample)}", level


def _ok(text: str) -> tuple[str, Level]:
    return text, "ok"


def _each(sample: Sample, value: Callable[[GpuSample], float | None]) -> list[float]:
    return [one for gpu in sample.gpus if (one := value(gpu)) is not None]


def _most(sample: Sample, value: Callable[[GpuSample], float | None]) -> float | None:
    return max(_each(sample, value), default=None)


def _mean(sample: Sample, value: Callable[[GpuSample], float | None]) -> float | None:
    found = _each(sample, value)
    return sum(found) / len(found) if found else None


def _speed(sample: Sample) -> float | None:
    return sample.row.tokens_per_second


def _busy(sample: Sample) -> float | None:
    return _mean(sample, lambda gpu: gpu.busy)


def _heat(sample: Sample) -> float | None:
    return _most(sample, lambda gpu: gpu.temperature)


def _power(sample: Sample) -> float | None:
    found = _each(sample, lambda gpu: gpu.power)
    return sum(found) if found else None


def _length(sample: Sample) -> str:
    length = sample.row.acceptance_length
    return (
        words.NONE
        if length is None
        else f"{length:.2f}" + ("s" if sample.row.al_source == "SGLang's" else "")
    )


def _requests(sample: Sample) -> tuple[str, Level]:
    shown = sample.row
    if shown.running is None and shown.queued is None:
        return words.NONE, "ok"
    return f"{words.whole(shown.running)}/{words.whole(shown.queued)}", "warning" if shown.queued else "ok"


COLUMNS: Sequence[Column] = (
    Column("HOST", 12, lambda s: _ok(s.host), lambda s: s.host),
    Column("STATE", 13, _state, lambda s: s.row.state),
    Column("PROFILE", 14, lambda s: _ok(s.row.profile or words.NONE), lambda s: s.row.profile, 110),
    Column("RELEASE", 24, lambda s: _ok(s.row.release or words.NONE), lambda s: s.row.release, 190),
    Column(
        "DRIFT", 5, lambda s: (f"{len(s.row.drift)}", "warning") if s.row.drift else _ok(words.NONE),
        lambda s: len(s.row.drift), 150, True,
    ),
    Column("UP", 4, lambda s: _ok(words.short(s.row.since)), lambda s: s.row.since, 0, True),
    Column("RST", 3, lambda s: _ok(words.whole(s.row.restarts)), lambda s: s.row.restarts, 115, True),
    Column("RUN/Q", 5, _requests, lambda s: s.row.running, 0, True),
    Column("TOK/S", 6, lambda s: _ok(words.number(_speed(s))), _speed, 0, True),
    Column("AL", 5, lambda s: _ok(_length(s)), lambda s: s.row.acceptance_length, 0, True),
    Column("STEP", 7, lambda s: _ok(words.milliseconds(s.step_time)), lambda s: s.step_time, 90, True),
    Column(
        "KV", 4, lambda s: (words.percent(s.kv_use), alarms.KV_USE.level(s.kv_use)), lambda s: s.kv_use,
        0, True,
    ),
    Column("GPU", 4, lambda s: _ok(words.percent(_busy(s))), _busy, 0, True),
    Column(
        "MEM", 5,
        lambda s: (words.percent(_mean(s, _memory)), alarms.GPU_MEMORY.level(_most(s, _memory))),
        lambda s: _mean(s, _memory), 122, True,
    ),
    Column("W", 6, lambda s: _ok(words.number(_power(s), 0)), _power, 132, True),
    Column(
        "°C", 4, lambda s: (words.number(_heat(s), 0), alarms.TEMPERATURE.level(_heat(s))), _heat, 95, True
    ),
    Column(
        "ALARM", 0, lambda s: (s.alarm.text, s.alarm.level) if s.alarm else _ok(""),
        lambda s: None if s.alarm is None else {"critical": "0", "warning": "1"}.get(s.alarm.level, "2"), 160,
    ),
)  # fmt: skip


AGE_WIDTH = 6
_GAP = 2


def visible(width: int, always: str = "") -> list[Column]:
    """Return the columns that a screen of `width` cells has room for, and the one named `always`.

    A column without a width takes what is left; the age of the sample (AGE_WIDTH) comes last.
    """
    shown = [column for column in COLUMNS if column.since <= width or column.name == always]
    taken = AGE_WIDTH + _GAP + sum(column.width + _GAP for column in shown)
    return [replace(one, width=max(width - taken, 12)) if not one.width else one for one in shown]


def age_cell(sample: Sample, now: float) -> tuple[str, Level]:
    """Return how old the values are."""
    if sample.paused:
        return "paused", "ok"
    level: Level = "critical" if sample.stale(now) else "ok"
    return words.age(sample.age(now)), level


def draw(cell: tuple[str, Level], column_width: int, right: bool, colours: Colours, stale: bool) -> Text:
    """Return a cell as text; stale values are dim and in italics, whatever their level."""
    text, level = printable(cell[0]), cell[1]
    style = f"italic {colours.dim}" if stale else colours.plain(level)
    shown = Text(text, style=style, no_wrap=True, overflow="ellipsis")
    shown.truncate(column_width, overflow="ellipsis")
    shown.align("right" if right else "left", column_width)
    return shown
