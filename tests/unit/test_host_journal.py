"""Journal entries: cut anywhere, binary, huge, hostile."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.host.journal import entries, parse
from kdops.text import printable

pytestmark = pytest.mark.unit


def line(message, cursor="s=1;i=2;b=3;m=4;t=5;x=6", **fields):
    return json.dumps(
        {"__CURSOR": cursor, "MESSAGE": message, "__REALTIME_TIMESTAMP": "1500000", **fields}
    ).encode()


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        (list(b"\xff\x1b[0m"), "\ufffd\x1b[0m"),
        ([list(b"one"), "two"], "one\ntwo"),
        ([], ""),
        (["a", "b"], "a\nb"),
        ({"odd": 1}, "{'odd': 1}"),
        ([256, -1], "256\n-1"),
    ],
)
def test_every_form_of_a_message(message, text):
    found = parse(line(message, _PID="12", PRIORITY="3"))
    assert (found.message, found.pid, found.priority, found.time) == (text, 12, 3, 1.5)


@pytest.mark.parametrize(
    "junk", [b"", b"-- No entries --", b"[1]", b'{"MESSAGE":"x"}', b'{"__CURSOR":1}', b"\xff"]
)
def test_what_is_no_entry(junk):
    assert parse(junk) is None


def test_systemd_s_own_lines_carry_the_invocation_elsewhere():
    assert parse(line("x", INVOCATION_ID="a")).invocation == "a"
    assert parse(line("x", _SYSTEMD_INVOCATION_ID="b", INVOCATION_ID="a")).invocation == "b"


def test_an_entry_is_the_same_in_another_journal_file():
    entry = parse(line("x", cursor="s=old;i=9;b=B;m=M;t=T;x=X"))
    assert entry.same_as("s=new;i=1;b=B;m=M;t=T;x=X")
    assert not entry.same_as("s=old;i=9;b=B;m=M;t=T;x=Y")
    assert not entry.same_as("nonsense")


@given(
    st.lists(st.text(max_size=30), max_size=8),
    st.lists(st.integers(0, 400), max_size=12),
    st.binary(max_size=20),
)
def test_pieces_of_any_size_give_every_whole_line_once(messages, cuts, torn):
    stream = b"".join(line(message) + b"\n" for message in messages) + torn.replace(b"\n", b"")
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert [entry.message for entry in entries(pieces)] == messages


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(junk):
    list(entries([junk, b"\n"]))


def test_arrays_in_arrays_break_no_reader():
    for depth in (2, 3, 300, 600, 900):
        entry = parse(b'{"__CURSOR": "x", "MESSAGE": %s65%s}' % (b"[" * depth, b"]" * depth))
        assert entry is None or entry.message == ("A" if depth == 2 else "")


def test_a_huge_line_arrives_whole():
    text = "x" * 3_000_000
    whole = line(text) + b"\n"
    pieces = [whole[i : i + 65536] for i in range(0, len(whole), 65536)]
    assert [entry.message for entry in entries(pieces)] == [text]


@given(st.text())
def test_nothing_printable_can_act_on_a_terminal(text):
    shown = printable(text)
    assert not any((ord(char) < 32 and char != "\t") or 0x7F <= ord(char) < 0xA0 for char in shown)
    assert not set(shown) & set("\u202e\u2066\u200b\u2028")
    shown.encode()


def test_escapes_stay_readable_and_words_stay_as_they_are():
    assert (
        printable("a\x1b[31mred\x07 Größe 漢字\t\u202e") == r"a\x1b[31mred\x07 Größe 漢字" + "\t" + r"\u202e"
    )
