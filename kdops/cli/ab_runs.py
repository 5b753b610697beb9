"""What was measured: shown, listed, two runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kdops import paths
from kdops.cli.output import emit, emit_folded, emit_json, say
from kdops.errors import UsageError
from kdops.text import columns

if TYPE_CHECKING:
    from kdops.bench.results import RunResult
    from kdops.store import Store


def finish(id_: str, store: Store, as_json: bool) -> None:
    """Analyse a complete run, keep what later runs need of it, and show it."""
    from kdops.observe import record

    result = _result(id_, store)
    store.set_state(id_, "done", _kept(result))
    record.measured(result, store, say)
    _show(result, store, as_json)


def _result(id_: str, store: Store) -> RunResult:
    from kdops.bench import stored

    return stored.result(stored.planned(id_, store), store)


def _kept(result: RunResult) -> dict[str, Any]:
    """Return what is kept of a result: an A/A run's noise as a log ratio, for later runs, and the calls."""
    from kdops.bench.floor import noise

    return {"noise": noise(result), "calls": {name: one.call for name, one in result.comparisons.items()}}


def show(id_: str, store: Store, as_json: bool) -> None:
    """Show a measured run. Ends with its exit code."""
    _show(_result(id_, store), store, as_json)


def _show(result: RunResult, store: Store, as_json: bool) -> None:
    from kdops.bench.records import records
    from kdops.bench.stored import readable
    from kdops.report import terminal
    from kdops.report.document import document, write

    run = store.run(result.run)
    with readable(run):
        page = write(result, records(run, store), paths.state() / "reports" / run.id)
        lines = terminal.screen(result)
    if as_json:
        emit_json(document(result))
    else:
        for line in (*lines, f"report: {page}"):
            emit_folded(line)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def list_runs(store: Store, as_json: bool) -> None:
    """List what was measured, newest first."""
    runs = store.runs()
    if as_json:
        emit_json(
            [
                {"run": r.id, "host": r.host, "created": r.created, "state": r.state, "plan": r.plan}
                | {"calls": r.calls}
                for r in runs
            ]
        )
        return
    finished = store.finished()
    rows = [("RUN", "HOST", "STATE", "LEGS", "ARMS", "RESULT")]
    for one in runs:
        said = ", ".join(f"{arm} {call}" for arm, call in one.calls.items())
        legs = f"{finished.get(one.id, 0)}/{one.legs}"
        rows.append((one.id, one.host, one.state, legs, " ".join(one.arms), said))
    emit("\n".join(columns(rows)))


def show_both(one: str, another: str, store: Store, as_json: bool) -> None:
    """Show two runs side by side, without a verdict: their legs were not drawn in one order."""
    first, second = _result(one, store), _result(another, store)
    found: list[dict[str, Any]] = []
    for arm in first.arms:
        other = next((one for one in second.arms if one.name == arm.name), None)
        for name in arm.per_set:
            if other and name in other.per_set:
                rates = [side.per_set[name].tokens_per_second for side in (arm, other)]
                found.append({"set": name, "arm": arm.name, "tokens_per_second": rates})
    if not found:
        raise UsageError(
            "these runs share no arm and prompt set",
            cause=f"{first.run}, {second.run}",
            remedy="kdops ab list",
        )
    same = first.plan["workload"] == second.plan["workload"]
    if not same:
        say("warning: the workloads differ; the numbers are not comparable")
    if as_json:
        emit_json({"runs": [first.run, second.run], "same_workload": same, "rates": found})
    else:
        rows = [("SET", "ARM", first.run, second.run, "RATIO")]
        for each in found:
            a, b = each["tokens_per_second"]
            rows.append((each["set"], each["arm"], f"{a:.1f}", f"{b:.1f}", f"{b / a:.3f}"))
        emit("\n".join(columns(rows)))
    say("no verdict: a comparison needs legs of one run, in an order drawn for it")
