"""`kdops diagnose` on files: a journal, an archive, a measurement; and bad input."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import test_diagnose_rules as rules
import test_diagnose_sources as sources
import typer
from hypothesis import given
from hypothesis import strategies as st

from kdops.bench import arms
from kdops.cli.main import app
from kdops.diagnose.apply import diagnose
from kdops.diagnose.failures import CLASSES
from kdops.errors import UsageError
from kdops.host.archive import Collected, pack
from kdops.observe.archive import from_report

pytestmark = pytest.mark.unit

SCENARIOS = Path(__file__).parent.parent / "scenarios"
COMMANDS: Any = typer.main.get_command(app)


def kdops(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "kdops.cli.main", "diagnose", *arguments]
    return subprocess.run(argv, input=stdin, capture_output=True, timeout=60)


def archive(path: Path, files: Mapping[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(f"kdops-report-lab0/{name}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def test_a_journal_is_diagnosed_in_80_columns() -> None:
    done = kdops("--journal", str(SCENARIOS / "story3.log"))
    text = done.stdout.decode()
    assert done.returncode == 0
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("contradict each other") < text.index("every draft is rejected")
    assert "docs/failures.md#flat-commit" in text


def test_stdin_and_json() -> None:
    done = kdops("--journal", "-", "--json", stdin=(SCENARIOS / "story2.log").read_bytes())
    told = json.loads(done.stdout)
    assert [finding["id"] for finding in told["findings"]] == ["broken-invariant"]
    assert told["findings"][0]["confidence"] == "certain"
    assert "measurement" in told["absent"]


def test_the_coverage_of_a_journal() -> None:
    story = str(SCENARIOS / "story1.log")
    done = kdops("--journal", story, "--tokens", "1500", "--json")
    told = json.loads(done.stdout)
    assert [finding["id"] for finding in told["findings"]] == ["incomplete-source"]
    assert "coverage 46%: AL 2.92 is an estimate" in told["findings"][0]["evidence"][0]
    assert "237 logged steps commit 692 tokens: AL 2.92, coverage 46%" in told["seen"]
    assert "coverage unknown" in kdops("--journal", story).stdout.decode()


def test_a_journal_without_anything_wrong() -> None:
    done = kdops("--journal", "-", stdin=b"\xff\xfe systemd-network:x:998:998\n")
    assert done.returncode == 0
    assert done.stdout.startswith(b"no finding: nothing in the journal was recognised\n")
    assert b"journal: none of its 1 lines is one that an engine or systemd writes" in done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "Nov 29 22:00:00 ct200 python[812]: hello",
        "2026-11-29T22:00:00+0000 ct200 python[812]: hello",
        "[2026-11-29 22:00:00] hello",
        "-- No entries --",
        'INFO:     127.0.0.1:5000 - "GET /health HTTP/1.1" 200 OK',
        json.dumps({"MESSAGE": "Started kdtree-ct200.service."}),
        (SCENARIOS / "story1.log").read_text().splitlines()[0],
    ],
)
def test_a_quiet_journal_is_known_for_one(line: str) -> None:
    done = kdops("--journal", "-", stdin=f"hello\n{line}\n".encode())
    assert done.stdout.split(b"\n", 1)[0] == b"no finding"


def test_an_archive_is_diagnosed(tmp_path: Path) -> None:
    failed = (
        "ct200 systemd[1]: Starting kdtree-ct200.service - x...\nOSError: [Errno 98] Address already in use\n"
    )
    path = archive(
        tmp_path / "r.tar.gz",
        {
            "manifest.json": json.dumps({"host": "ct200"}),
            "journal.txt": failed,
            "unit.txt": "ActiveState=failed\nNRestarts=2\nCPUQuotaPerSecUSec=500ms\n",
            "metrics.txt": "kdtree_steps_total 100.0\nkdtree_broken_steps_total 1.0\n",
            "gpu.txt": "        HW Thermal Slowdown : Active\n        SW Power Cap : Active\n",
        },
    )
    done = kdops("--report", str(path), "--json")
    told = json.loads(done.stdout)
    assert told["host"] == "ct200"
    found = [finding["id"] for finding in told["findings"]]
    assert found == ["port-in-use", "broken-invariant", "clocks-throttled", "cpu-limited"]
    assert "bench.json" in told["absent"]


def test_the_archive_that_kdops_report_packs_is_read(tmp_path: Path) -> None:
    journal = (SCENARIOS / "story3.log").read_text()
    bench = json.dumps({"id": "r", "document": sources.REPORT})
    collected = Collected({"journal.txt": journal, "bench.json": bench}, {"metrics.txt": "no answer"})
    path = tmp_path / "r.tar.gz"
    path.write_bytes(pack("ct200", collected))
    told = json.loads(kdops("--report", str(path), "--json").stdout)
    found = [finding["id"] for finding in told["findings"]]
    assert found[0] == "broken-invariant"
    assert {"flat-commit", "foreign-load", "verify-not-split"} < set(found)
    assert "metrics.txt" in told["absent"]
    assert "bench.json" not in told["absent"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.json", "[1"),
        ("bench.json", '{"arms": 3}'),
        ("server_info.json", "null"),
        ("unit.txt", "\0"),
    ],
)
def test_odd_files_in_an_archive_do_no_harm(tmp_path: Path, name: str, text: str) -> None:
    done = kdops("--report", str(archive(tmp_path / "r.tar.gz", {name: text})), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["findings"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("lab0", "--run", "x"),
        ("--journal", "/nonexistent"),
        ("--journal", "/"),
        ("--report", "/nonexistent"),
        ("--report", __file__),
        ("lab0", "--tokens", "3"),
    ],
    ids=str,
)
def test_bad_input_is_a_sentence(arguments: tuple[str, ...]) -> None:
    done = kdops(*arguments)
    assert done.returncode == 2
    assert b"remedy:" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_file_that_is_no_archive_is_told_in_words() -> None:
    assert b"cause:  it is no gzip archive" in kdops("--report", __file__).stderr


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    done = kdops("--report", str(archive(tmp_path / "r.tar.gz", {"../../etc/passwd": "x"})))
    assert done.returncode == 2


@pytest.mark.parametrize("id_", rules.CASES)
def test_every_next_experiment_is_a_command_that_exists(id_: str) -> None:
    for finding in diagnose(rules.CASES[id_]):
        if not finding.next_experiment:
            continue
        name, *words = shlex.split(finding.next_experiment)[1:]
        context = COMMANDS.commands[name].make_context(name, words)
        if name == "ab":
            made = arms.parse(context.params["words"], context.params["settings"] or [])
            assert len(made) > 1, finding.next_experiment


def test_remedies_name_commands_that_exist() -> None:
    texts = [one.remedy for one in CLASSES]
    texts += [finding.remedy for case in rules.CASES.values() for finding in diagnose(case)]
    named = {word for text in texts for word in re.findall(r"kdops (\w+) (?:HOST|ct200|linear)", text)}
    assert named - set(COMMANDS.commands) == set()


@pytest.mark.parametrize("bench", ['{"document": [1]}', '{"document": "x"}', '{"document": null}', "[]", "{"])
def test_an_archive_whose_measurement_is_odd(tmp_path: Path, bench: str) -> None:
    path = archive(tmp_path / "r.tar.gz", {"journal.txt": "x\n", "bench.json": bench})
    done = kdops("--report", str(path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["absent"]["bench.json"] == "no result in it"


def test_json_keeps_what_could_act_on_a_terminal_escaped() -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. \x9b31m\u202e\u2028\x7f é Tried to allocate 1 GiB\n"
    out = kdops("--journal", "-", "--json", stdin=line.encode()).stdout.decode()
    assert not {"\x9b", "\u202e", "\u2028", "\x7f"} & set(out)
    assert "9b31m" in json.dumps(json.loads(out))


JOURNAL = "".join(f"{number} {number**3 % 9973}\n" for number in range(5_000))
PACKED = pack("ct200", Collected({"journal.txt": JOURNAL, "unit.txt": "ActiveState=active\n"}))


def unusable(path: Path) -> str:
    done = kdops("--report", str(path))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"remedy:" in done.stderr and b"Traceback" not in done.stderr
    return done.stderr.decode()


@given(cut=st.integers(0, len(PACKED) - 1))
def test_an_archive_that_was_cut_is_told(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "r.tar.gz"
    path.write_bytes(PACKED[:cut])
    with pytest.raises(UsageError):
        from_report(path)


@given(at=st.integers(0, len(PACKED) - 1), bits=st.integers(1, 255))
def test_a_damaged_archive_is_told(tmp_path_factory: pytest.TempPathFactory, at: int, bits: int) -> None:
    path = tmp_path_factory.mktemp("damaged") / "r.tar.gz"
    path.write_bytes(PACKED)
    whole = from_report(path)
    path.write_bytes(PACKED[:at] + bytes([PACKED[at] ^ bits]) + PACKED[at + 1 :])
    try:
        found = from_report(path)
    except UsageError:
        return
    assert found == whole, "a byte that nobody needs, as the time in the header"


def test_an_archive_that_lost_a_file_is_told(tmp_path: Path) -> None:
    manifest = json.dumps({"host": "ct200", "files": {"journal.txt": {}, "unit.txt": {}, "stacks.txt": {}}})
    path = archive(tmp_path / "r.tar.gz", {"manifest.json": manifest, "unit.txt": "ActiveState=active\n"})
    assert "journal.txt, stacks.txt" in unusable(path)


def test_a_tar_cut_before_it_was_packed_is_told(tmp_path: Path) -> None:
    tar = gzip.decompress(PACKED)
    for cut in (600, 1024, len(tar) // 2):
        (tmp_path / "r.tar.gz").write_bytes(gzip.compress(tar[:cut]))
        assert "cannot be read" in unusable(tmp_path / "r.tar.gz")


def test_an_archive_that_unpacks_without_end_is_told(tmp_path: Path) -> None:
    path = tmp_path / "r.tar.gz"
    info = tarfile.TarInfo("x/journal.txt")
    info.size = 1 << 40
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(info.tobuf())
        for _ in range(600):
            file.write(bytes(1 << 20))
    assert "it unpacks to more than 512 MiB" in unusable(path)


@pytest.mark.parametrize(
    ("kind", "body", "times"),
    [
        (tarfile.XHDTYPE, b"99999999999999999999 a=b\n", 1),
        (tarfile.XHDTYPE, b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n", 1),
        (tarfile.GNUTYPE_LONGNAME, b"abc\0", 3000),
    ],
    ids=["overflow", "sparse", "nested"],
)
def test_a_made_up_header_is_told(tmp_path: Path, kind: bytes, body: bytes, times: int) -> None:
    info, last = tarfile.TarInfo("x"), tarfile.TarInfo("x/journal.txt")
    info.type, info.size = kind, len(body)
    tar = (info.tobuf() + body.ljust(512, b"\0")) * times + last.tobuf() + bytes(1024)
    (tmp_path / "r.tar.gz").write_bytes(gzip.compress(tar))
    assert "cannot be read" in unusable(tmp_path / "r.tar.gz")


def test_a_pipe_is_no_archive_and_one_without_a_writer_no_journal(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "a device or a pipe" in unusable(tmp_path / "pipe")
    done = kdops("--journal", str(tmp_path / "pipe"))
    assert done.returncode == 2 and b"nobody writes to this pipe" in done.stderr
    assert kdops("--journal", "/dev/zero").returncode == 2
