"""The kept lines and their filter: nothing lost, places that stay, expressions that are none."""

from __future__ import annotations

import gc
import time

import pytest
import session
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style

from kdops.text import printable
from kdops.tui import journal_lines
from kdops.tui.error_lines import error_class
from kdops.tui.journal_lines import Filter, JournalLines, Mode
from kdops.tui.lines_widget import marked

pytestmark = pytest.mark.unit


def messages(lines: JournalLines) -> list[str]:
    return [lines.entry(number).message for number in lines.matching]


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(journal_lines, "MOST", 100)
    monkeypatch.setattr(journal_lines, "_SLACK", 20)


def test_numbers_stay_while_old_lines_go(small):
    lines = JournalLines()
    lines.add(session.entries(100))
    place = lines.entry(60)
    lines.add(session.entries(25, start=100))
    assert lines.end == 125 and len(lines) == 100 and lines.first == 25
    assert lines.entry(60) == place, "a number means the same line for ever"
    assert lines.entry(3) is None and lines.entry(125) is None
    assert lines.matching == list(range(25, 125))


def test_kept_lines_are_nothing_to_the_garbage_collector():
    lines = JournalLines()
    gc.collect()
    before = len(gc.get_objects())
    lines.add(session.entries(20_000))
    gc.collect()
    assert len(lines) == 20_000
    assert len(gc.get_objects()) - before < 1000


def test_a_filter_is_worked_through_newest_first():
    lines = JournalLines()
    lines.add(session.entries(50))
    lines.refilter(Filter("outofmemory"))
    assert lines.matching == [] and lines.pending == 50
    lines.work(15)
    assert lines.matching == [38, 48]
    lines.add(session.entries(10, start=50))
    lines.work(1000)
    assert lines.matching == [8, 18, 28, 38, 48, 58] and lines.pending == 0


def test_a_filter_that_is_overtaken_by_old_lines_going(small):
    lines = JournalLines()
    lines.add(session.entries(100))
    lines.refilter(Filter("decode"))
    lines.add(session.entries(25, start=100))
    lines.work(1000)
    assert lines.pending == 0
    assert lines.matching == [n for n in range(25, 125) if n % 10 == 6]


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (Filter("DECODE batch"), 0),
        (Filter("decode batch"), 1),
        (Filter("a.b"), 0),
        (Filter("dcdbtch", Mode.FUZZY), 1),
        (Filter("Load.*GB$", Mode.REGEX), 1),
        (Filter("("), 6),
        (Filter("(", Mode.REGEX), 0),
        (Filter("a" * 5000 + "(" * 500, Mode.REGEX), 0),
        (Filter(priority=4), 2),
        (Filter("out", priority=3), 1),
    ],
)
def test_filters(shown, found):
    lines = JournalLines(shown)
    lines.add(session.entries())
    expected = sum("(" in message for _, message in session.LINES) if shown == Filter("(") else found
    assert len(lines.matching) == expected
    assert bool(shown.problem()) == (shown.mode is Mode.REGEX and shown.text != "Load.*GB$")


@given(st.text(), st.text())
def test_fuzzy_means_the_characters_in_order(text, message):
    pattern = Filter(text, Mode.FUZZY).pattern
    rest = iter(message)
    if all(c in rest for c in text):
        assert pattern.search(message)


def test_fuzzy_cannot_take_for_ever():
    pattern = Filter("a" * 30 + "!", Mode.FUZZY).pattern
    begun = time.perf_counter()
    assert not pattern.search("a" * 20_000)
    assert time.perf_counter() - begun < 2


def test_no_regular_expression_can_take_for_ever():
    matches = Filter("(a|a)*b", Mode.REGEX).matcher()
    begun = time.perf_counter()
    assert not matches("a" * 5000, 6)
    assert time.perf_counter() - begun < 2


def test_what_is_no_text_is_searched_and_refused_without_harm():
    odd = "half \ud800 a line"
    shown = Filter("half . a", Mode.REGEX)
    assert shown.matcher()(odd, 6)
    assert "".join(one.text for one in marked(printable(odd), shown, Style(), Style()))
    assert Filter("\ud800", Mode.REGEX).problem() == "it is not UTF-8"


def test_classes_of_errors():
    (oom,) = [entry for entry in session.entries() if "OutOfMemory" in entry.message]
    assert error_class(oom) not in ("", "error")
    assert error_class(session.entries()[6]) == "", "a decode batch is no error"
    plain = session.entries()[0]
    assert error_class(plain) == ""
