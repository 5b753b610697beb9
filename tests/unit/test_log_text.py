"""What `kdops logs` shows of an entry, and which entries `--grep` chooses."""

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kdops import host
from kdops.cli.log_text import pattern, shown, without_stamp
from kdops.cli.main import app
from kdops.errors import UsageError
from kdops.host import follow
from kdops.host.journal import Entry

pytestmark = pytest.mark.unit
LINE = "[2026-11-29 17:20:11 TP3] Decode batch, #running-req: 1"


def entry(message: str, at: float = 1_796_000_000.0) -> Entry:
    return Entry(cursor="c", time=at, message=message)


@pytest.mark.parametrize(
    ("message", "left"),
    [
        (LINE, "[TP3] Decode batch, #running-req: 1"),
        ("[2026-11-29 17:20:11] INFO:     Started server", "INFO:     Started server"),
        ("[2026-11-29 17:20:11.123 DP0 TP3 EP1] x", "[DP0 TP3 EP1] x"),
        ("[2026-11-29 17:20:11]", ""),
        (" [2026-11-29 17:20:11] x", " [2026-11-29 17:20:11] x"),
        ("[2026-11-29] x", "[2026-11-29] x"),
        ("[٢٠٢٦-11-29 17:20:11] x", "[٢٠٢٦-11-29 17:20:11] x"),
        ("at [2026-11-29 17:20:11] x", "at [2026-11-29 17:20:11] x"),
        ("[2026-11-29 17:20:11 tp3] x", "[2026-11-29 17:20:11 tp3] x"),
    ],
)
def test_only_sglang_s_own_time_at_the_start_goes(message: str, left: str) -> None:
    assert without_stamp(message) == left


@given(st.text())
def test_a_message_without_a_stamp_is_untouched(message: str) -> None:
    assert without_stamp("x" + message) == "x" + message


def test_a_line_has_one_time() -> None:
    assert shown(entry(LINE))[19:] == " [TP3] Decode batch, #running-req: 1"
    assert shown(entry(LINE), raw=True)[19:] == f" {LINE}"
    assert json.loads(shown(entry(LINE), as_json=True))["message"] == LINE


def test_sglang_s_time_stays_where_the_journal_has_none() -> None:
    assert LINE in shown(entry(LINE, at=0.0))


def test_further_lines_stand_below_the_message() -> None:
    assert shown(entry("one\ntwo")).split("\n")[1] == f"{'':19} two"


@pytest.mark.parametrize("expression", ["^\\[TP3\\] Decode", "17:20:11 TP3", "^Decode|batch", "(?i)DECODE"])
def test_a_pattern_sees_the_line_as_shown_and_as_written(expression: str) -> None:
    assert pattern(expression).search(LINE)


def test_a_pattern_that_is_not_there() -> None:
    assert not pattern("^batch").search(LINE)


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|a)*b", "(a*)*c", ".*" * 200 + "z"])
def test_no_pattern_takes_for_ever(expression: str) -> None:
    """Each of these takes Python's own re longer than anybody waits."""
    begun = time.monotonic()
    assert not pattern(expression).search("a" * 100_000 + "!")
    assert time.monotonic() - begun < 5


def test_text_that_is_no_utf_8_is_searched_all_the_same() -> None:
    assert pattern("found").search("\ud800 found")


HUGE = {"deep": "(" * 50_000, "long": "x" * 9_000_000}


@pytest.mark.parametrize(
    "expression",
    ["(", "[a-", "*", "(?!x)", r"(a)\1", "a{5000}", "\ud800", *HUGE.values()],
    ids=lambda e: ascii(e[:8]),
)
def test_what_is_no_expression_is_told_in_a_few_words(expression: str) -> None:
    with pytest.raises(UsageError) as refused:
        pattern(expression)
    assert "is no regular expression" in refused.value.title
    assert len(refused.value.title) + len(refused.value.cause) < 1000


@pytest.mark.parametrize(
    ("options", "found", "said"),
    [
        (("--grep", "x"), [], "no line matches\n"),
        (("--grep", "x"), ["an x"], ""),
        (("--grep", "x", "-n", "0"), [], ""),
        ((), [], ""),
    ],
)
def test_a_pattern_that_no_line_has_is_told(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], found: list[str], said: str
) -> None:
    monkeypatch.setattr(host, "HostConnection", lambda host: contextlib.nullcontext())
    monkeypatch.setattr(follow, "read", lambda connection, query: [entry(text) for text in found])
    done = CliRunner().invoke(app, ["logs", "lab0", *options])
    assert (done.exit_code, len(done.stdout.splitlines()), done.stderr) == (0, len(found), said)
