"""The live feed over a real SSH connection: one for sampler and journal, opened again when it breaks."""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from ssh_server import SshServer, ssh_host

from kdops.host.audit import Deploy
from kdops.tui import live
from kdops.tui.feed import Event, Failed, Heard, Lines, Said, Warned
from kdops.tui.live import Live, usual_load
from kdops.tui.recording import Recorder

pytestmark = pytest.mark.unit

# What `journalctl -o json` does with a file of its lines: all, or from a cursor on, then what is appended.
JOURNALCTL = """#!/bin/sh
from=1
for word in "$@"; do
  case $word in
    --cursor=*) from=$(grep -n -F "\\"${word#--cursor=}\\"" "$JOURNAL" | cut -d: -f1);;
    --follow) follow=-F;;
  esac
done
exec tail -n "+${from:-1}" $follow "$JOURNAL"
"""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "journalctl"
    program.write_text(JOURNALCTL)
    program.chmod(0o755)
    path = tmp_path / "journal"
    path.touch()
    return path


def write(journal: Path, first: int, last: int) -> None:
    with journal.open("a") as file:
        for n in range(first, last):
            line = {"__CURSOR": f"c{n}", "__REALTIME_TIMESTAMP": str(n), "MESSAGE": f"line {n}"}
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def host(tmp_path: Path, journal: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Live, SshServer]]:
    monkeypatch.setattr(live, "BACKOFF_S", (0.05, 0.1))
    path = f"{journal.parent / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    with ssh_host(tmp_path, "box", {"PATH": path, "JOURNAL": str(journal)}) as (found, server):
        feed = Live([found], 0.05)
        feed.start()
        yield feed, server
        feed.stop()
        feed.connections["box"].close()


def until(feed: Live, done: Callable[[list[Event]], bool], what: str) -> list[Event]:
    found: list[Event] = []
    stop = time.monotonic() + 20
    while not done(found):
        if time.monotonic() > stop:
            pytest.fail(f"not within 20 s: {what}: {found[-3:]}")
        found += feed.drain()
        time.sleep(0.005)
    return found


def messages(found: list[Event]) -> list[str]:
    return [entry.message for event in found if isinstance(event, Lines) for entry in event.entries]


def heard(found: list[Event]) -> int:
    return sum(isinstance(event, Heard) for event in found)


def test_one_connection_carries_samples_and_journal(host: tuple[Live, SshServer], journal: Path) -> None:
    feed, server = host
    write(journal, 0, 10)
    until(feed, lambda found: heard(found) >= 2, "samples")
    feed.follow("box")
    feed.follow("box")
    found = until(feed, lambda found: len(messages(found)) >= 10, "the lines that are there")
    write(journal, 10, 5000)
    before = len(messages(found))
    found += until(
        feed, lambda later: before + len(messages(later)) >= 5000 and heard(later) > 2, "the new lines"
    )
    assert messages(found) == [f"line {n}" for n in range(5000)], "each once, in order"
    assert server.connections == 1


def test_a_broken_link_is_mended_and_no_line_is_lost(host: tuple[Live, SshServer], journal: Path) -> None:
    feed, server = host
    write(journal, 0, 3)
    feed.follow("box")
    found = until(feed, lambda found: len(messages(found)) == 3 and heard(found) > 0, "the first lines")
    server.refuse = True
    server.hang_up()
    lost = until(feed, lambda found: any(isinstance(event, Failed) for event in found), "the loss is told")
    assert any(event.error.code == 3 for event in lost if isinstance(event, Failed))
    write(journal, 3, 6)
    server.refuse = False
    again = until(feed, lambda found: len(messages(found)) >= 3 and heard(found) > 0, "it goes on")
    assert messages([*found, *lost, *again]) == [f"line {n}" for n in range(6)]
    assert any(isinstance(event, Said) for event in [*lost, *again])
    assert server.connections == 2


def test_a_stopped_feed_waits_for_nothing(host: tuple[Live, SshServer]) -> None:
    feed, _ = host
    until(feed, lambda found: heard(found) >= 1, "a sample")
    begun = time.monotonic()
    feed.stop()
    assert time.monotonic() - begun < 0.5


def test_the_usual_load_is_the_median_of_committed_starts() -> None:
    def deploy(result: str, **seconds: float) -> Deploy:
        return Deploy("t", "ann", "", "r", result, None, "client", seconds, None)

    deploys = [deploy("committed", starting=s) for s in (10, 30, 200)]
    assert usual_load([*deploys, deploy("rolled-back", starting=1), deploy("committed")]) == 30
    assert usual_load([]) is None


class FullDisk(Recorder):
    """A recorder that finds the disk full once its file is made."""

    def write(self, events: Sequence[Event]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    feed = Live([], recorder=FullDisk(tmp_path / "session", []))
    assert feed.drain() == [Warned("recording stopped: No space left on device")]
    assert feed.drain() == []
