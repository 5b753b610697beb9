"""Recordings, key files and plots."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest
import session
from hypothesis import given, settings
from hypothesis import strategies as st

from kdops.errors import ExitCode, UsageError
from kdops.tui import keys, recording
from kdops.tui.feed import MOST_WAITING, Failed, Heard, Inbox, Lines
from kdops.tui.plot import plot
from kdops.tui.recording import Recorder
from kdops.tui.replay import Replay

pytestmark = pytest.mark.unit


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "session.jsonl"
    recorder = Recorder(path, session.FLEET)
    recorder.write(list(session.events(3)))
    recorder.close()
    return path


def test_a_recording_plays_as_it_was(recorded):
    assert recording.hosts(recorded) == session.FLEET
    played, real = list(recording.events(recorded)), list(session.events(3))
    assert [(type(a), a.host, a.at) for a in played] == [(type(a), a.host, a.at) for a in real]
    assert next(e for e in played if isinstance(e, Lines)).entries == session.entries(40)
    (error,) = {(e.error.title, e.error.cause, e.error.code) for e in played if isinstance(e, Failed)}
    assert error == ("old-box: timed out", "no answer from 10.0.0.9 port 22", ExitCode.UNREACHABLE)


def test_a_recording_holds_no_settings(tmp_path):
    document = session.document("b300-0", 0.0)
    document["manifest"] |= {"settings": {"environment": {"HF_TOKEN": "hf_secret"}}}
    recorder = Recorder(tmp_path / "r", ["b300-0"])
    recorder.write([Heard("b300-0", 1.0, document)])
    assert "hf_secret" not in (tmp_path / "r").read_text()


@pytest.mark.parametrize("when", ["NaN", "1e400", "-1", "1e308"])
def test_an_event_of_no_time_is_left_out(tmp_path, when):
    path = tmp_path / "r"
    line = '{"t": %s, "host": "h", "report": {}}\n'
    path.write_text('{"kdops": "recording", "version": 1, "hosts": ["h"]}\n' + line % when + line % 5)
    assert [event.at for event in recording.events(path)] == [5.0]


def test_a_recording_never_replaces_a_file(recorded):
    with pytest.raises(UsageError, match="cannot record"):
        Recorder(recorded, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no recording"),
        ("hello\n", "is no recording"),
        ("[" * 100_000, "is no recording"),
        ('{"kdops": "recording", "version": 2}\n', "version 2"),
        ('{"kdops": "recording", "version": 1, "hosts": ["a"]}\n', "holds no event"),
    ],
)
def test_no_recording(tmp_path, text, said):
    path = tmp_path / "f"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        Replay(path)
    with pytest.raises(UsageError, match="cannot read"):
        Replay(tmp_path / "missing")


@settings(max_examples=40)
@given(st.text() | st.binary().map(lambda b: b.decode(errors="replace")))
def test_damaged_lines_are_left_out(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("r") / "f"
    good = json.dumps({"t": 1.0, "host": "a", "report": {}})
    head = json.dumps({"kdops": "recording", "version": 1, "hosts": ["a"]})
    path.write_text(f"{head}\n{text}\n{good[:-4]}\n{good}\n", errors="replace")
    assert Heard("a", 1.0, {}) in list(recording.events(path))


ENTRY = {
    "cursor": "c",
    "time": 1.0,
    "message": "m",
    "priority": 6,
    "identifier": "i",
    "pid": 7,
    "invocation": "",
}
ODD = st.sampled_from([None, "x", -1, 8, True, [], {}, 1e300, 10**400, float("nan"), float("inf"), "9" * 400])


@given(st.dictionaries(st.sampled_from([*ENTRY, "more"]), ODD), st.none() | ODD)
def test_entries_are_as_they_were_written_or_left_out(tmp_path_factory, odd, when):
    path = tmp_path_factory.mktemp("r") / "f"
    lines = [{"t": 1.0, "host": "a", "journal": [{**ENTRY, **odd}]}, {"t": when, "host": "a", "report": {}}]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    for event in recording.events(path):
        assert 0 <= event.at < 1e11
        for entry in event.entries if isinstance(event, Lines) else ():
            assert isinstance(entry.message, str) and entry.priority in range(8) and 0 <= entry.time < 1e11
            datetime.fromtimestamp(entry.time)


def test_a_pipe_or_a_device_holds_no_recording_and_no_keys(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match="cannot read"):
            Replay(path)
        with pytest.raises(UsageError, match="cannot be read"):
            keys.load(path)


def test_replay_keeps_time_and_begins_again(recorded):
    feed = Replay(recorded, 200.0, forever=True)
    feed.start()
    stop, found = time.monotonic() + 10, []
    while time.monotonic() < stop and not (found and found[-1].at > session.BEGUN + 5):
        found += [event for event in feed.drain() if isinstance(event, Heard)]
        time.sleep(0.005)
    feed.stop()
    times = [event.at for event in found]
    assert times == sorted(times)
    assert times[-1] > session.BEGUN + 5, "three seconds were recorded"


def test_an_inbox_makes_a_fast_writer_wait(monkeypatch):
    inbox = Inbox()
    (entry,) = session.entries(1)
    for _ in range(MOST_WAITING):
        assert inbox.add("a", entry)
    inbox.close()
    assert not inbox.add("a", entry), "closed: nobody waits any longer"
    (lines,) = inbox.drain()
    assert len(lines.entries) == MOST_WAITING + 1


def test_the_keys_as_they_are_do_not_overlap():
    keys.check({}, "the table")
    assert keys.by_key({})["fleet", "enter"].name == "fleet.open"
    assert keys.by_key({})["ab", "enter"].name == "ab.open"


@pytest.mark.parametrize("text", ['[keys]\n"fleet.sort" = "f5,o"\n', '[keys]\nfleet.sort = "f5"\n'])
def test_another_key(tmp_path, text):
    path = tmp_path / "keys.toml"
    path.write_text(text.replace(",o", ",f6"))
    changed = keys.by_key(keys.load(path))
    assert changed["fleet", "f5"].name == "fleet.sort"
    assert ("fleet", "s") not in changed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("keys", "cannot be read"),
        ("[keys]\nquit = " + "[" * 10_000, "cannot be read"),
        ("[other]\na = 1\n", "has no table"),
        ("keys = 1\n", "has no table"),
        ('[keys]\n"fleet.sorts" = "x"\n', "did you mean 'fleet.sort'"),
        ("[keys]\nquit = 7\n", "must be a key"),
        ('[keys]\nquit = ""\n', "must be a key"),
        ('[keys]\nquit = "s"\n', "the key s would mean quit and fleet.sort"),
        ('[keys]\n"journal.copy" = "e"\n', "would mean journal.next-error and journal.copy"),
        ('[keys]\nquit = "no-such-key"\n', "is no key"),
        ('[keys]\nquit = "ctrl+c"\n', "is no key"),
    ],
)
def test_wrong_key_files(tmp_path, text, said):
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        keys.load(path)
    assert said in f"{caught.value.title} {caught.value.cause}"


def test_no_key_file():
    assert keys.load(None) == {}


def test_a_plot():
    drawn = plot([None, 1, 2, 4], 6, 1)
    assert (drawn.lines, drawn.low, drawn.high) == (("   ▂▄█",), 0.0, 4)
    assert plot([8, 1], 2, 2).lines == ("█ ", "█▂")
    assert plot([], 5, 5) is None and plot([None], 5, 5) is None and plot([1], 0, 5) is None
    assert plot([0, 0], 2, 1).lines == ("▁▁",)
    assert plot([1, 2, 3], 2, 1).lines == ("▅█",), "the newest are shown"


@given(st.lists(st.none() | st.floats(0, 1e9), max_size=50), st.integers(0, 20), st.integers(0, 6))
def test_any_plot_has_its_size(values, width, height):
    drawn = plot(values, width, height)
    if drawn is not None:
        assert len(drawn.lines) == height and {len(line) for line in drawn.lines} == {width}
