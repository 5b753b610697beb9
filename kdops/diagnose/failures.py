"""From lines of a journal to the class of failure they show: the first cause, not the last line.

A class is never guessed: lines that no pattern matches are unknown (None). Among the lines of the newest
start that failed, a cause goes before a consequence, a consequence before how the process ended, and then
the earlier line before the later.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kdops.diagnose.failure_class import FailureClass, Kind, Phase
from kdops.diagnose.failure_table import collectives, cuda, engine, files, memory, settings, unit
from kdops.diagnose.needles import needles
from kdops.text import uncoloured

CLASSES: tuple[FailureClass, ...] = (
    *memory.CLASSES,
    *cuda.CLASSES,
    *collectives.CLASSES,
    *files.CLASSES,
    *settings.CLASSES,
    *engine.CLASSES,
    *unit.CLASSES,
)

_LINES = 5
_LENGTH = 400
_LONGEST = 4000
_MOST = 2000
# Only the beginnings of starts and phases; everything else is matched against the table.
_START = re.compile(r"(?:^|systemd\[1\]: )Starting (?!to\b)\S+\.service|(?:^|systemd\[1\]: )Starting .* - ")
_FAILED = re.compile(
    r"Main process exited(?!, code=exited, status=0/)|Failed with result|hit an exception: Traceback"
    r"|\(exit (?:6[45]|7[015])\)"
)
_PHASES = (
    (Phase.LOADING, re.compile(r"Load weight begin|stand-in starts|server_args=ServerArgs\(")),
    (Phase.GRAPHS, re.compile(r"Capture .*begin\.")),
    (Phase.LOADING, re.compile(r"Capture .*end\.")),
    (Phase.SERVING, re.compile(r"fired up and ready|kdtree: ready")),
)
_MARKS = re.compile(
    "|".join(["Starting ", "Load weight begin", "stand-in starts", "server_args=", "Capture ", "fired up"])
    + "|kdtree: |Main process exited|Failed with result|hit an exception"
)
# Each class with all of its patterns as one expression.
TABLE = tuple((one, re.compile("|".join(f"(?:{p})" for p in one.patterns))) for one in CLASSES)
_NEEDLES = needles(pattern for one in CLASSES for pattern in one.patterns)
# SGLang says so of optional models and kernels in every healthy start.
_HARMLESS = re.compile(r"[Ii]gnor(?:e|ing)\b|[Ff]all(?:s|ing)? ?back|[Rr]etrying|is optional|disabled: ")


@dataclass(frozen=True)
class Failure:
    """A classified failure. lines: those that show it, cleaned; phase: of the start, when it happened.
    fatal: False if the engine went on afterwards."""

    failure_class: FailureClass
    lines: tuple[str, ...]
    phase: Phase
    line_number: int
    fatal: bool = True


class Classifier:
    """Takes lines one at a time, in the journal's order, and keeps only what a verdict needs."""

    def __init__(self) -> None:
        self._number = self._served = self._matched = 0
        self._phase = Phase.UNKNOWN
        self._failed = False
        self._found: dict[str, Failure] = {}
        self._previous: dict[str, Failure] = {}

    def feed(self, line: str) -> None:
        """Take the next line, of any text."""
        self._number += 1
        if " batch, " in line or "DDTREE metrics" in line or ' HTTP/1.1" 200' in line:
            # A batch is proof of serving. Such lines are most of a journal, and match nothing.
            self._served = self._number
            self._phase = Phase.SERVING if self._phase is Phase.UNKNOWN else self._phase
            return
        line = uncoloured(line[:_LONGEST])
        if _MARKS.search(line):
            self._mark(line)
        # The first cause is early: a start that repeats its last words for ever adds nothing to it.
        if self._matched < _MOST and _may_match(line) and not _HARMLESS.search(line):
            self._matched += 1
            self._match(clean(line))

    def result(self) -> Failure | None:
        """Return the first cause in the newest start that failed, or None: unknown."""
        found = self._found if self._found or self._failed else self._previous
        order = list(Kind)
        first = min(
            found.values(),
            key=lambda f: (order.index(f.failure_class.kind), f.line_number),
            default=None,
        )
        went_on = first is not None and not self._failed and self._served > first.line_number
        return replace(first, fatal=False) if first and went_on else first

    def _mark(self, line: str) -> None:
        if begins(line):
            if self._found or self._failed:
                self._previous = self._found
            self._found, self._failed, self._phase, self._matched = {}, False, Phase.LOADING, 0
        elif _FAILED.search(line):
            self._failed = True
        else:
            self._phase = next((phase for phase, mark in _PHASES if mark.search(line)), self._phase)
            if self._phase is Phase.SERVING:
                self._served = self._number

    def _match(self, line: str) -> None:
        for one, pattern in TABLE:
            if (one.phases and self._phase not in one.phases) or not pattern.search(line):
                continue
            before = self._found.get(one.id)
            if before is None:
                self._found[one.id] = Failure(one, (line,), self._phase, self._number)
            elif len(before.lines) < _LINES and line not in before.lines:
                self._found[one.id] = replace(before, lines=(*before.lines, line))


def begins(line: str) -> bool:
    """Say whether this is systemd's line at the beginning of a start."""
    return "Starting " in line and _START.search(line) is not None


def classify(lines: Iterable[str]) -> Failure | None:
    """Return the failure that `lines` (oldest first, with or without the journal's prefix) show, or None."""
    classifier = Classifier()
    for line in lines:
        for part in line.splitlines():
            classifier.feed(part)
    return classifier.result()


def _may_match(line: str) -> bool:
    for needle in _NEEDLES:  # noqa: SIM110 - any() over a generator is three times slower
        if needle in line:
            return True
    return False


def clean(line: str) -> str:
    """Return `line` without colours and cut to a length that a terminal can show."""
    text = uncoloured(line).strip()
    return text if len(text) <= _LENGTH else text[: _LENGTH - 1] + "…"
