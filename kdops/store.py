"""What was measured, in SQLite: every sample is on disk before the next one is waited for."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from kdops import paths
from kdops.errors import ExitCode, KdopsError, UsageError
from kdops.held import Held
from kdops.loose import items, mapping

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  id TEXT PRIMARY KEY, host TEXT NOT NULL, created TEXT NOT NULL, plan TEXT NOT NULL, state TEXT NOT NULL,
  result TEXT);
CREATE TABLE IF NOT EXISTS legs (
  run TEXT NOT NULL REFERENCES runs(id), position INTEGER NOT NULL, attempt INTEGER NOT NULL,
  state TEXT NOT NULL, evidence TEXT NOT NULL, PRIMARY KEY (run, position, attempt));
CREATE TABLE IF NOT EXISTS samples (
  run TEXT NOT NULL, position INTEGER NOT NULL, attempt INTEGER NOT NULL, key TEXT NOT NULL,
  sample TEXT NOT NULL,
  PRIMARY KEY (run, position, attempt, key),
  FOREIGN KEY (run, position, attempt) REFERENCES legs(run, position, attempt));
CREATE TABLE IF NOT EXISTS marks (
  at TEXT NOT NULL, host TEXT NOT NULL, profile TEXT NOT NULL, engine TEXT NOT NULL, release TEXT NOT NULL,
  quantity TEXT NOT NULL, basis TEXT NOT NULL, value REAL NOT NULL,
  PRIMARY KEY (at, host, profile, release, quantity));
"""

_COLUMNS = "id, host, created, plan, state, result"
_PATIENCE_S = 5.0
"""Another kdops writes for milliseconds."""


@dataclass(frozen=True)
class StoredRun:
    """One measurement. state: running (a process measures it), interrupted, failed or done. result: the
    report, once it is done.

    What a list shows (arms, releases, calls, legs) is what the stored plan and result tell: it never raises.
    """

    id: str
    host: str
    created: str
    plan: Mapping[str, Any]
    state: str
    result: Mapping[str, Any] | None

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(str(arm.get("name", "?")) for arm in self._arms)

    @property
    def releases(self) -> tuple[str | None, ...]:
        """Release of each arm."""
        return tuple(arm.get("release") for arm in self._arms)

    @property
    def _arms(self) -> list[Mapping[str, Any]]:
        return [arm for arm in items(self.plan.get("arms")) if isinstance(arm, dict)]

    @property
    def calls(self) -> Mapping[str, Any]:
        """Candidate → what was said of it."""
        return mapping(mapping(self.result).get("calls"))

    @property
    def legs(self) -> int:
        """How many legs are planned, the reference among them."""
        return len(items(self.plan.get("order"))) + bool(self.plan.get("reference"))


@dataclass(frozen=True)
class Mark:
    """One value that a host is compared with later. quantity: "AL", or a time in seconds; engine: digest of
    kdtree-engine; basis: what makes two values comparable (the workload's digest, empty for start-up times).
    """

    at: str
    host: str
    profile: str
    engine: str
    release: str
    quantity: str
    basis: str
    value: float


class Store:
    """The operator's measurements, a file in the state folder. Raises KdopsError if it is unusable."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or paths.state() / "measurements.sqlite"
        self._held = Held(self._path.parent / "running")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self._path, isolation_level=None, timeout=_PATIENCE_S)
            self._db.executescript(_SCHEMA)
            self._db.execute("PRAGMA foreign_keys = ON")
        except (sqlite3.Error, OSError) as error:
            raise KdopsError(
                "the measurements cannot be opened",
                cause=f"{self._path}: {error}",
                remedy="see to that file, or set KDOPS_STATE to another folder",
            ) from error

    def close(self) -> None:
        """Close the file; runs that are not over are let go."""
        self._held.close()
        self._db.close()

    def open_run(self, id_: str, host: str, created: str, plan: Mapping[str, Any]) -> None:
        """Record a run before anything of it is done. It is this process's to measure."""
        self._hold(id_)
        self._write(
            "INSERT INTO runs VALUES (?, ?, ?, ?, 'running', NULL)", id_, host, created, json.dumps(plan)
        )

    def set_state(self, id_: str, state: str, result: Mapping[str, Any] | None = None) -> None:
        """Record how far the run is, and its result. Raises KdopsError (exit 4) if it is to run and another
        process measures it.
        """
        if state == "running":
            self._hold(id_)
        told = None if result is None else json.dumps(result, allow_nan=False)
        self._write("UPDATE runs SET state = ?, result = COALESCE(?, result) WHERE id = ?", state, told, id_)
        if state != "running":
            self._held.drop(id_)

    def open_leg(self, run: str, position: int) -> int:
        """Begin an attempt at a leg; returns its number. Samples of earlier attempts stay, uncounted."""
        rows = self._read(
            "SELECT COALESCE(MAX(attempt), 0) + 1 FROM legs WHERE run = ? AND position = ?", run, position
        )
        attempt = int(rows[0][0])
        self._write("INSERT INTO legs VALUES (?, ?, ?, 'open', '{}')", run, position, attempt)
        return attempt

    def add_sample(self, run: str, position: int, attempt: int, key: str, sample: Mapping[str, Any]) -> None:
        """Write one sample down. Raises KdopsError when it is there already: nothing counts twice."""
        text = json.dumps(sample, allow_nan=False)
        self._write("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", run, position, attempt, key, text)

    def close_leg(self, run: str, position: int, attempt: int, evidence: Mapping[str, Any]) -> None:
        """Make the attempt the one that counts."""
        told = json.dumps(evidence, allow_nan=False)
        self._write(
            "UPDATE legs SET state = 'done', evidence = ? WHERE run = ? AND position = ? AND attempt = ?",
            told, run, position, attempt,
        )  # fmt: skip

    def legs(self, run: str) -> dict[int, tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
        """Return position → (evidence, samples in the order they came) of the finished legs."""
        found: dict[int, tuple[Mapping[str, Any], list[Mapping[str, Any]]]] = {}
        done = (
            "SELECT position, attempt, evidence FROM legs WHERE run = ? AND state = 'done' ORDER BY position"
        )
        for position, attempt, evidence in self._read(done, run):
            rows = self._read(
                "SELECT sample FROM samples WHERE run = ? AND position = ? AND attempt = ? ORDER BY rowid",
                run, position, attempt,
            )  # fmt: skip
            found[position] = (self._json(run, evidence), [self._json(run, row[0]) for row in rows])
        return found

    def finished(self) -> dict[str, int]:
        """Return run → how many legs are finished, of the runs that have one."""
        done = "SELECT run, COUNT(DISTINCT position) FROM legs WHERE state = 'done' GROUP BY run"
        return dict(self._read(done))

    def runs(self, host: str | None = None) -> list[StoredRun]:
        """Return all runs, newest first."""
        where, values = ("WHERE host = ?", (host,)) if host else ("", ())
        chosen = f"SELECT {_COLUMNS} FROM runs {where} ORDER BY created DESC, rowid DESC"
        return [
            StoredRun(
                id_,
                name,
                created,
                self._json(id_, plan),
                self._now(id_, state),
                result and self._json(id_, result),
            )
            for id_, name, created, plan, state, result in self._read(chosen, *values)
        ]

    def run(self, id_: str) -> StoredRun:
        """Return the run whose id begins with `id_`. Raises UsageError when none or several do."""
        rows = [run for run in self.runs() if run.id.startswith(id_)] if id_ else []
        exact = [run for run in rows if run.id == id_]
        if len(exact or rows) != 1:
            raise UsageError(
                f"{len(rows) or 'no'} runs begin with {id_!r}",
                cause=", ".join(run.id for run in rows[:5]) or "nothing of that name was measured here",
                remedy="`kdops ab list` shows the runs",
            )
        return (exact or rows)[0]

    def add_marks(self, marks: Iterable[Mark]) -> None:
        """Put values on a host's record; one that is there already stays."""
        for mark in marks:
            self._write("INSERT OR IGNORE INTO marks VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *astuple(mark))

    def marks(self, host: str, profile: str) -> list[Mark]:
        """Return the host's record for a profile, oldest first."""
        rows = self._read(
            "SELECT * FROM marks WHERE host = ? AND profile = ? ORDER BY at, rowid", host, profile
        )
        if odd := [row[-1] for row in rows if not isinstance(row[-1], float)]:
            raise self._unreadable(f"the record of {host} holds {odd[0]!r}, which is no number")
        return [Mark(*row) for row in rows]

    def _now(self, run: str, state: str) -> str:
        """Return the state: what was left running by a process that is gone is interrupted."""
        return "interrupted" if state == "running" and run not in self._held else state

    def _hold(self, run: str) -> None:
        try:
            self._held.take(run)
        except BlockingIOError:
            raise KdopsError(
                f"run {run} is measured by another kdops now",
                cause="two of them would measure the same legs",
                remedy="wait for it: kdops ab list shows how far it is",
                code=ExitCode.LOCKED,
            ) from None
        except OSError as error:
            raise self._unwritable(error) from error

    def _write(self, statement: str, *values: Any) -> None:
        try:
            with closing(self._db.execute(statement, values)):
                pass
        except sqlite3.Error as error:
            raise self._unwritable(error) from error

    def _read(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._unreadable(str(error)) from error

    def _json(self, run: str, text: str) -> dict[str, Any]:
        try:
            told = json.loads(text, parse_constant=_no_number)
        except (ValueError, TypeError, RecursionError) as error:
            raise self._unreadable(f"run {run}: {error}") from error
        if not isinstance(told, dict):
            raise self._unreadable(f"run {run}: an object is due where {text[:40]!r} stands")
        return told

    def _unwritable(self, error: Exception) -> KdopsError:
        return KdopsError(
            "a measurement cannot be written",
            cause=f"{self._path}: {error}",
            remedy="free space there, or set KDOPS_STATE; then `kdops ab resume`",
        )

    def _unreadable(self, why: str) -> KdopsError:
        return KdopsError(
            "the measurements cannot be read",
            cause=f"{self._path}: {why}",
            remedy="see to that file, or set KDOPS_STATE to another folder",
        )


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number that kdops writes")
