"""What `kdops diagnose` finds out about a host, as the Host view shows it."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from kdops.diagnose import apply
from kdops.diagnose.finding import Finding, Severity
from kdops.host import HostConnection
from kdops.observe.evidence import from_host
from kdops.store import Store
from kdops.text import printable
from kdops.tui.alarms import Level
from kdops.tui.columns import MARKS
from kdops.tui.themes import Colours

_LEVELS: dict[Severity, Level] = {
    Severity.WRONG: "critical",
    Severity.SLOW: "warning",
    Severity.NOTE: "ok",
}


@dataclass(frozen=True)
class Diagnosis:
    """The findings, worst first. absent: what could not be looked at → why. asking: it still goes on."""

    findings: tuple[Finding, ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    asking: bool = False
    problem: str = ""


def look(connection: HostConnection) -> Diagnosis:
    """Ask the host, as `kdops diagnose` does; it reads up to 100,000 journal lines. Raises KdopsError."""
    store = Store()
    try:
        evidence = from_host(connection.host, connection, store)
    finally:
        store.close()
    return Diagnosis(apply.diagnose(evidence), tuple(sorted(evidence.absent.items())))


def draw(diagnosis: Diagnosis | None, host: str, key: str, colours: Colours) -> Text:
    """Return the panel's words; without a diagnosis how to get one. key: of the command. Pure."""
    if diagnosis is None:
        text = Text("nothing diagnosed yet: ", style=colours.dim)
        return text.append(f"{key}, or `kdops diagnose {printable(host)}`", style=colours.text)
    if diagnosis.asking:
        return Text("asking the host…", style=colours.dim)
    if diagnosis.problem:
        return Text(printable(diagnosis.problem), style=colours.critical)
    text = Text()
    if not diagnosis.findings:
        text.append("no finding\n", style=colours.ok)
    for finding in diagnosis.findings:
        level = _LEVELS[finding.severity]
        text.append(f"{MARKS[level]} {printable(finding.title)}", style=f"bold {colours.level(level)}")
        text.append(f" [{finding.confidence}]\n", style=colours.dim)
        text.append(f"  {printable(finding.cause)}\n")
        text.append(f"  remedy: {printable(finding.remedy)}\n", style=colours.accent)
        if finding.next_experiment:
            text.append(f"  next: {printable(finding.next_experiment)}\n", style=colours.primary)
        text.append(f"  {finding.link}\n", style=colours.dim)
    for source, why in diagnosis.absent:
        text.append(f"not looked at: {printable(source)}: {printable(why)}\n", style=colours.dim)
    return text
