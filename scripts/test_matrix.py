"""Run the fault matrix (the tests marked `matrix`) file by file: a Markdown report; exit 1 if a case failed.

usage: test_matrix.py [FILE...]   by `make matrix` (root, Debian). What a file gave last time is kept in
$KDOPS_CACHE/test-matrix, so that a run of some files reports the others too, each with its own commit.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from bench_cli import machine

from kdops import paths

LIMIT_S = 1800


@dataclass(frozen=True)
class Case:
    """outcome: passed, failed, error or skipped. seconds: its own, with set-up and teardown."""

    name: str
    outcome: str
    seconds: float


@dataclass(frozen=True)
class Result:
    """One file's run. starts: of real engines."""

    file: str
    commit: str
    when: str
    seconds: float
    starts: int
    cases: tuple[Case, ...]

    @property
    def rows(self) -> Iterator[str]:
        for case in self.cases:
            told = case.outcome if case.outcome == "passed" else f"**{case.outcome}**"
            yield f"| {case.name.replace('|', '&#124;')} | {told} | {case.seconds:.0f} |"


def cases(junit: Path) -> tuple[Case, ...]:
    """Read pytest's report; a run that ended without one has no cases."""
    try:
        found = ElementTree.parse(junit).iter("testcase")
    except (OSError, ElementTree.ParseError):
        return ()
    return tuple(Case(case.get("name", "?"), _outcome(case), float(case.get("time", 0))) for case in found)


def _outcome(case: ElementTree.Element) -> str:
    told = {"failure": "failed", "error": "error", "skipped": "skipped"}
    return next((word for tag, word in told.items() if case.find(tag) is not None), "passed")


def run(file: str) -> Result:
    """Run one file's cases; a file that runs into the limit or gives no report is one failed case."""
    with tempfile.TemporaryDirectory() as folder:
        junit, starts = Path(folder, "junit.xml"), Path(folder, "starts")
        starts.touch()
        command = ["pytest", "-m", "matrix", file, f"--junitxml={junit}"]
        begun = datetime.datetime.now(datetime.UTC)
        why = "no report"
        try:
            subprocess.run(
                command,
                env={**os.environ, "KDOPS_ENGINE_STARTS": str(starts)},
                stdout=sys.stderr,
                timeout=LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            why = f"not over after {LIMIT_S} s"
        seconds = (datetime.datetime.now(datetime.UTC) - begun).total_seconds()
        return Result(
            file,
            subprocess.run(
                ["git", "describe", "--always", "--dirty"], capture_output=True, text=True
            ).stdout.strip(),
            begun.strftime("%Y-%m-%d %H:%M UTC"),
            round(seconds, 1),
            len(starts.read_text().splitlines()),
            cases(junit) or (Case(f"({why})", "failed", seconds),),
        )


def files() -> list[str]:
    """Return the test files that have cases of the matrix, in pytest's order."""
    asked = ["pytest", "-m", "matrix", "--collect-only", "-q"]
    listed = subprocess.run(asked, capture_output=True, text=True).stdout
    return list(dict.fromkeys(line.partition("::")[0] for line in listed.splitlines() if "::" in line))


def kept(folder: Path, file: str) -> Result | None:
    path = folder / f"{file.replace('/', '-')}.json"
    if not path.is_file():
        return None
    raw = json.loads(path.read_text())
    return Result(**{**raw, "cases": tuple(Case(**case) for case in raw["cases"])})


def report(results: Sequence[Result], missing: Sequence[str], where: str) -> None:
    """Print the document; `missing`: files that were never run."""
    found = [case for result in results for case in result.cases]
    good = sum(case.outcome == "passed" for case in found)
    print("# The fault matrix\n")
    print(
        "Every case that `make test` leaves out (marker `matrix`), run by `make matrix`: systemd hosts of the"
    )
    print(f"lab, real engines on the CPU. {where}.")
    print(
        f"{good} of {len(found)} passed; {sum(r.starts for r in results)} engine starts, "
        f"{sum(r.seconds for r in results) / 60:.0f} min in all. Seconds include set-up and teardown."
    )
    if missing:
        print(f"\n**Not run: {', '.join(missing)}.**")
    for result in results:
        print(f"\n## {result.file}\n")
        print(
            f"`pytest -m matrix {result.file}` on {result.when}, commit {result.commit}: "
            f"{result.seconds:.0f} s, {result.starts} engine starts.\n"
        )
        print("| case | outcome | s |\n|---|---|---|")
        print("\n".join(result.rows))


def main() -> None:
    """Run the files asked for, keep what they gave, report all that is known."""
    folder, where = paths.cache() / "test-matrix", machine()
    folder.mkdir(parents=True, exist_ok=True)
    every = files()
    for file in sys.argv[1:] or every:
        result = run(file)
        (folder / f"{file.replace('/', '-')}.json").write_text(json.dumps(asdict(result)))
    results = [known for file in every if (known := kept(folder, file))]
    missing = sorted(set(every) - {result.file for result in results})
    report(results, missing, where)
    good = all(case.outcome == "passed" for result in results for case in result.cases)
    sys.exit(0 if good and not missing else 1)


if __name__ == "__main__":
    main()
