"""From evidence to findings."""

from __future__ import annotations

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.finding import Finding, worst_first
from kdops.diagnose.rules.table import RULES


def diagnose(evidence: Evidence) -> tuple[Finding, ...]:
    """Return what the rules conclude, worst first; nothing for a healthy engine."""
    return tuple(worst_first([finding for rule in RULES for finding in rule(evidence)]))
