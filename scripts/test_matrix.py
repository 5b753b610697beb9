"""Run the fault matrix (the tests marked `matrix`) file by file into docs/benchmarks/test-matrix.md.

usage: test_matrix.py [FILE...]   by `make matrix` (root, Debian); exit 1 if a case of them did not pass.
The document is written after each file. What a file gave last time is kept in $KDOPS_CACHE/test-matrix,
so that a run of some files reports the others too, each with its own commit.
"""

from __future__ import annotations

import ast
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
DOCUMENT = Path("docs/benchmarks/test-matrix.md")
HEAD = """# The fault matrix

Every fault class has cases that `make test` runs, and further ones (marker `matrix`) that take too long for
it. These are the further ones, as `make matrix` ran them, on systemd hosts of the lab and on real
SGLang engines on the CPU: one table a test file. `make matrix FILES=tests/lab/test_check.py` runs one file
anew; the others keep what they gave, each with its own commit. Seconds include set-up and teardown.
"""


@dataclass(frozen=True)
class Case:
    """outcome: passed, failed, error or skipped. seconds: its own, with set-up and teardown."""

    name: str
    outcome: str
    seconds: float


@dataclass(frozen=True)
class Result:
    """One file's run. where: the machine; starts: of real engines."""

    file: str
    commit: str
    where: str
    when: str
    seconds: float
    starts: int
    cases: tuple[Case, ...]

    @property
    def passed(self) -> int:
        return sum(case.outcome == "passed" for case in self.cases)

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


def run(file: str, commit: str, where: str) -> Result:
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
            commit,
            where,
            begun.strftime("%Y-%m-%d %H:%M UTC"),
            round(seconds, 1),
            len(starts.read_text().splitlines()),
            cases(junit) or (Case(f"({why})", "failed", seconds),),
        )


def files() -> list[str]:
    """Return the test files that have cases of the matrix, in pytest's order."""
    asked = ["pytest", "-m", "matrix", "--collect-only", "-q"]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout)
    return list(dict.fromkeys(line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line))


def kept(folder: Path, file: str) -> Result | None:
    path = folder / f"{file.replace('/', '-')}.json"
    if not path.is_file():
        return None
    raw = json.loads(path.read_text())
    return Result(**{**raw, "cases": tuple(Case(**case) for case in raw["cases"])})


def report(results: Sequence[Result], missing: Sequence[str]) -> Iterator[str]:
    """Yield the document's lines; `missing`: files that were never run."""
    passed, count = sum(r.passed for r in results), sum(len(r.cases) for r in results)
    starts, minutes = sum(r.starts for r in results), sum(r.seconds for r in results) / 60
    yield HEAD
    yield f"{passed} of {count} passed in {minutes:.0f} min; engine starts: {starts}."
    if missing:
        yield f"\n**Not run: {', '.join(missing)}.**"
    for result in results:
        yield f"\n## {result.file}\n\n{ast.get_docstring(ast.parse(Path(result.file).read_text()))}\n"
        yield (
            f"`make matrix FILES={result.file}` on {result.when}, commit {result.commit}: {result.passed} of "
            f"{len(result.cases)} passed in {result.seconds:.0f} s; engine starts: {result.starts}.\n"
            f"Machine: {result.where}.\n"
        )
        yield "| case | outcome | s |\n|---|---|---|"
        yield from result.rows


def main() -> None:
    """Run the files asked for, keep what they gave, report all that is known."""
    # Asked before the document is touched: afterwards the tree is dirty.
    commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    every = files()
    asked = sys.argv[1:] or every
    if strange := set(asked) - set(every):
        sys.exit(f"no case of the matrix in {', '.join(sorted(strange))}; there are: {', '.join(every)}")
    folder = paths.cache() / "test-matrix"
    folder.mkdir(parents=True, exist_ok=True)
    good = True
    for file in asked:
        result = run(file, commit, machine())
        good &= result.passed == len(result.cases)
        (folder / f"{file.replace('/', '-')}.json").write_text(json.dumps(asdict(result)))
        results = [known for name in every if (known := kept(folder, name))]
        missing = [name for name in every if name not in {result.file for result in results}]
        DOCUMENT.write_text("\n".join(report(results, missing)) + "\n")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
