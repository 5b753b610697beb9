"""What a rule concludes from evidence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Confidence(StrEnum):
    """CERTAIN: the evidence shows it. PROBABLE: it fits, and something else could too. POSSIBLE: one of
    several explanations that the evidence does not tell apart."""

    CERTAIN = "certain"
    PROBABLE = "probable"
    POSSIBLE = "possible"


class Severity(StrEnum):
    """WRONG: numbers or answers cannot be trusted, or nothing serves. SLOW: right, but slower than it could
    be. NOTE: the measurement says less than it seems to."""

    WRONG = "wrong"
    SLOW = "slow"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """One conclusion. id: heading in docs/failures.md. evidence: the observations used, in words.
    excluded: alternatives with the observation that rules each out. next_experiment: a command, or empty
    when the evidence decides."""

    id: str
    title: str
    severity: Severity
    confidence: Confidence
    cause: str
    remedy: str
    next_experiment: str = ""
    evidence: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def link(self) -> str:
        """Where the documentation explains it."""
        return f"docs/failures.md#{self.id}"


def worst_first(findings: list[Finding]) -> list[Finding]:
    """Return them by severity, then confidence; equals stay in the order of the rules."""
    severities, confidences = list(Severity), list(Confidence)
    return sorted(findings, key=lambda f: (severities.index(f.severity), confidences.index(f.confidence)))
