"""`kdops diagnose`: why an engine is slow, wrong or down."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kdops.cli.config import INVENTORY, JSON, load
from kdops.cli.output import emit, emit_json
from kdops.errors import UsageError

if TYPE_CHECKING:
    from kdops.diagnose.evidence import Evidence
    from kdops.diagnose.finding import Finding
    from kdops.store import Store

WHERE = typer.Argument(None, metavar="[HOST]", help="A host, a group of one, or an inventory of one.")
RUN = typer.Option(None, "--run", metavar="RUN", help="A measurement instead: kdops ab list names them.")
JOURNAL = typer.Option(None, "--journal", metavar="FILE", help="A journal instead; - is stdin.")
TOKENS = typer.Option(
    None, "--tokens", min=1, help="With --journal: tokens generated in it; tells how much of them it holds."
)
REPORT = typer.Option(None, "--report", metavar="FILE", help="An archive of kdops report instead.")
_WIDTH, _LABEL = 80, 12


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(diagnose)


def diagnose(
    name: str | None = WHERE,
    run: str | None = RUN,
    journal: Path | None = JOURNAL,
    report: Path | None = REPORT,
    tokens: int | None = TOKENS,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Say why an engine is slow, wrong or down: findings with evidence, remedy and next experiment.

    Reads a host (journal, counters, settings, unit, GPUs, its last measurement), or one file. Findings are
    data: the exit code is 0 with and without them. AL is of all steps since the start (counters), of those in
    the journal, or of each prompt set of a run.
    """
    from kdops.diagnose.apply import diagnose as apply

    if sum(source is not None for source in (name, run, journal, report)) != 1:
        raise UsageError(
            "one source is needed",
            cause="name a host, or one of --run, --journal, --report",
            remedy="kdops diagnose HOST",
        )
    if tokens is not None and journal is None:
        raise UsageError(
            "--tokens needs --journal", cause="other sources count by themselves", remedy="leave it out"
        )
    evidence = dataclasses.replace(_evidence(name, run, journal, report, inventory), asked_tokens=tokens)
    findings = apply(evidence)
    if as_json:
        emit_json(document(evidence, findings))
        return
    for line in lines(evidence, findings):
        emit(line)


def document(evidence: Evidence, findings: tuple[Finding, ...]) -> dict[str, Any]:
    """Return what `--json` prints."""
    from kdops.diagnose.summary import seen

    return {
        "host": evidence.host,
        "profile": evidence.profile or None,
        "findings": [{**dataclasses.asdict(finding), "link": finding.link} for finding in findings],
        "seen": list(seen(evidence)),
        "absent": dict(evidence.absent),
    }


def lines(evidence: Evidence, findings: tuple[Finding, ...]) -> Iterator[str]:
    """Yield the findings for a terminal of 80 columns, then what was not there to look at."""
    who = " ".join(word for word in (evidence.host, evidence.profile) if word and word != "HOST")
    count = f"{len(findings)} finding{'s' if len(findings) != 1 else ''}" if findings else "no finding"
    if evidence.journal and not findings and "journal" in evidence.absent:
        count += ": nothing in the journal was recognised"
    yield f"{who}: {count}" if who else count
    for number, finding in enumerate(findings, 1):
        yield ""
        yield from textwrap.wrap(
            f"{number}. {finding.title} [{finding.severity}, {finding.confidence}]",
            _WIDTH,
            subsequent_indent="   ",
        )
        for label, texts in (
            ("cause", (finding.cause,)),
            ("evidence", finding.evidence),
            ("excluded", finding.excluded),
            ("remedy", (finding.remedy,)),
            ("next", (finding.next_experiment,) if finding.next_experiment else ()),
            ("more", (finding.link,)),
        ):
            for i, text in enumerate(texts):
                yield from _labelled(label if i == 0 else "", text)
    from kdops.diagnose.summary import seen

    missing = [f"{source}: {why}" for source, why in sorted(evidence.absent.items())]
    for title, told in (("seen", seen(evidence)), ("not looked at", missing)):
        if told:
            yield from ("", f"{title}:")
        for text in told:
            yield from textwrap.wrap(f"  {text}", _WIDTH, subsequent_indent="    ")


def _labelled(label: str, text: str) -> list[str]:
    wrapped = textwrap.wrap(text, _WIDTH - _LABEL, break_on_hyphens=False) or [""]
    return [f"   {label if i == 0 else '':{_LABEL - 3}}{line}" for i, line in enumerate(wrapped)]


def _evidence(
    name: str | None, run: str | None, journal: Path | None, report: Path | None, inventory: Path | None
) -> Evidence:
    from kdops.observe.archive import from_report
    from kdops.observe.journal import from_journal
    from kdops.store import Store

    if journal is not None:
        return from_journal(journal)
    if report is not None:
        return from_report(report)
    store = Store()
    if run is not None:
        return _of_run(run, store, inventory)
    from kdops.host import HostConnection
    from kdops.observe.evidence import from_host

    host = load(inventory).one(str(name))
    with HostConnection(host) as connection:
        return from_host(host, connection, store)


def _of_run(run: str, store: Store, inventory: Path | None) -> Evidence:
    from kdops.bench.stored import planned
    from kdops.errors import KdopsError
    from kdops.observe.evidence import from_run, run_of

    stored = planned(run, store, "inventory")
    try:
        host = load(inventory or Path(str(stored.plan["inventory"]))).one(stored.host)
    except KdopsError:
        host = None
    return from_run(run_of(stored, store, host), store)
