"""A unit as `systemctl cat` prints it: directives and where each stands (systemd.syntax(7))."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Directive:
    """One assignment. origin: "file:line" on the host."""

    section: str
    key: str
    value: str
    origin: str


def directives(text: str) -> tuple[Directive, ...]:
    """Return the assignments in force: later files add, an empty value drops what came before (drop-ins do
    this).
    """
    found: list[Directive] = []
    section, file, number = "", "?", 0
    for start, line in _logical_lines(text):
        if line.startswith("# /"):
            file, number, section = line[2:].strip(), start, ""
            continue
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            continue
        if stripped.startswith("[") and stripped.endswith("]"):
            section = stripped[1:-1]
            continue
        key, equals, value = stripped.partition("=")
        key, value = key.strip(), value.strip()
        if not (equals and key):
            continue
        if not value:
            found = [d for d in found if (d.section, d.key) != (section, key)]
            continue
        found.append(Directive(section, key, value, f"{file}:{start - number}"))
    return tuple(found)


def words(value: str) -> list[str]:
    """Split a command line or Environment= as systemd does. Raises ValueError for unbalanced quotes."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(value, posix=True)]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, line), continuations joined and comments in them dropped."""
    pending, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if pending and line.lstrip()[:1] in ("#", ";"):
            continue
        first = first if pending else number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        yield first, pending + line
        pending = ""
    if pending:
        yield first, pending


def last(found: Iterable[Directive], section: str, key: str) -> Directive | None:
    """Return the assignment that counts for a single-valued key."""
    return next((d for d in reversed(tuple(found)) if (d.section, d.key) == (section, key)), None)
