"""A kind of crash or refused start, and how it is recognised."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """How far a start was when a line was written, as far as the lines before it tell."""

    UNKNOWN = "unknown"
    LOADING = "loading"
    GRAPHS = "graphs"
    SERVING = "serving"


class Kind(StrEnum):
    """CAUSE: something went wrong by itself. CONSEQUENCE: mostly another failure's echo. END: how systemd or
    the launcher saw the process end, which says little about why."""

    CAUSE = "cause"
    CONSEQUENCE = "consequence"
    END = "end"


def environment(variable: str) -> str:
    """Return the option of a deploy that sets one variable (NAME: VALUE), as a shell takes it."""
    return f"--set 'engine_environment={{{variable}}}' (replaces the whole mapping)"


@dataclass(frozen=True)
class FailureClass:
    """id: heading in docs/failures.md. cause, remedy: one sentence each. patterns: regular expressions
    (case matters), any of which shows it. phases: when it can be this one; empty for always."""

    id: str
    title: str
    cause: str
    remedy: str
    patterns: tuple[str, ...]
    kind: Kind = Kind.CAUSE
    phases: frozenset[Phase] = frozenset()

    @property
    def link(self) -> str:
        """Where the documentation explains it."""
        return f"docs/failures.md#{self.id}"
