"""`kdops ab` and `kdops bench`: which arm is faster, by how much, and why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kdops import paths
from kdops.cli.config import HOST, INVENTORY, JSON, load
from kdops.cli.output import columns, emit, emit_json, say
from kdops.errors import ExitCode, KdopsError, UsageError
from kdops.text import printable

if TYPE_CHECKING:
    from kdops.bench.results import RunResult
    from kdops.bench.run import Job
    from kdops.bench.workloads import Suite
    from kdops.deploy.client import Options
    from kdops.fleet import Host
    from kdops.store import Store

WORDS = typer.Argument(
    ...,
    metavar="ARM ARM…",
    help="Profiles, the first is the baseline; or: list | show RUN | resume RUN | compare RUN RUN.",
)
AT = typer.Option(None, "--host", help="Where; the inventory's only host unless given.")
QUICK = typer.Option(
    False, "--quick", help="One start an arm, short texts: exploratory, no verdict (exit 9)."
)
SETS = typer.Option(
    None, "--set", metavar="[ARM:]KEY=V1,V2", help="Override; several values make several arms."
)
LEGS = typer.Option(4, "--legs", min=1, max=8, help="Starts an arm.")
SEED = typer.Option(None, "--seed", help="Seed of the order; drawn and recorded unless given.")
PROMPTS = typer.Option(
    None, "--prompts", help="Your prompts instead: JSONL, OpenAI batch, ShareGPT; repeatable."
)
YES = typer.Option(False, "--yes", help="Do not ask before taking the host for the run.")
_VERBS = {"list": 0, "show": 1, "resume": 1, "compare": 2}


def register(app: typer.Typer) -> None:
    """Add the two commands."""
    app.command()(ab)
    app.command()(bench)


def ab(
    words: list[str] = WORDS,
    name: str | None = AT,
    quick: bool = QUICK,
    settings: list[str] | None = SETS,
    legs: int = LEGS,
    seed: int | None = SEED,
    prompts: list[Path] | None = PROMPTS,
    yes: bool = YES,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Deploy each arm as a trial, measure, restore what served before, and say which is faster and why.

    Exit code 9: no verdict; 10: not lossless.
    """
    from kdops.bench import arms, run
    from kdops.store import Store

    store = Store()
    if words[0] in _VERBS:
        _verb(words, store, inventory, prompts, as_json)
        return
    host = _host(inventory, name)
    chosen = arms.parse(words, settings or [])
    job = run.prepare(host, chosen, _suite(prompts, quick), quick=quick, legs=legs, seed=seed)
    say(run.cost(job, _loads(host)))
    _ask(host, yes)
    _go(job, run.begin(job, store), store, as_json)


def bench(
    name: str = HOST,
    prompts: list[Path] | None = PROMPTS,
    quick: bool = QUICK,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Run the suite once on what serves now; nothing is deployed."""
    from kdops.bench import run
    from kdops.host import HostConnection, probe
    from kdops.store import Store

    host = load(inventory).one(name)
    with HostConnection(host) as connection:
        seen = probe(connection)
    if not seen.release or seen.unit.active != "active":
        raise KdopsError(
            f"nothing serves on {host.name}",
            cause=f"{seen.unit.name} is {seen.unit.active}",
            remedy=f"kdops deploy {host.name}",
            code=ExitCode.REFUSED,
        )
    store = Store()
    job = run.single(host, seen.profile, _suite(prompts, quick))
    id_ = run.begin(job, store)
    run.measure(job, id_, 0, 0, store, say)
    _finish(id_, store, as_json)


def _host(inventory: Path | None, name: str | None) -> Host:
    fleet = load(inventory)
    if name:
        return fleet.one(name)
    if len(fleet.hosts) != 1:
        raise UsageError(
            "which host?",
            cause=f"the inventory has {', '.join(host.name for host in fleet.hosts) or 'none'}",
            remedy="name one with --host",
        )
    return fleet.hosts[0]


def _suite(prompts: list[Path] | None, quick: bool) -> Callable[[int], Suite]:
    from kdops.bench import workloads

    sets = tuple(workloads.read(path) for path in prompts or ()) or workloads.built_in()
    return lambda length: workloads.make(sets, quick=quick, context_length=length)


def _loads(host: Host) -> list[float]:
    from kdops.deploy import guard_call
    from kdops.host import HostConnection

    with HostConnection(host) as connection:
        report = guard_call.call(connection, "status")
    return list(report["loads"]) if report else []


def _ask(host: Host, yes: bool) -> None:
    if yes or "lab" in host.groups:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            f"{host.name} would serve nobody else during the run",
            cause="this is not the lab, and there is nobody to ask",
            remedy="add --yes",
        )
    if not typer.confirm(f"{host.name} serves nobody else during the run. Go on?", err=True):
        raise typer.Exit(ExitCode.INTERRUPTED)


def _options(host: Host, job: Job, run: str) -> Options:
    from kdops.deploy.client import Options, seconds

    start = max(float(config.start_timeout) for config in job.configs)
    lease, ready = seconds(host, "kdops_lease", 60.0), seconds(host, "kdops_ready_timeout", start)
    return Options(f"A/B {run}", lease, ready)


def _go(job: Job, id_: str, store: Store, as_json: bool) -> None:
    from kdops.bench import run

    say(f"run {id_}")
    run.execute(job, id_, store, _options(job.host, job, id_), say)
    _finish(id_, store, as_json)


def _finish(id_: str, store: Store, as_json: bool) -> None:
    result = _result(id_, store)
    store.set_state(id_, "done", _floor_of(result))
    _show(result, as_json)


def _result(id_: str, store: Store) -> RunResult:
    from kdops.bench import run

    stored = store.run(id_)
    return run.result(stored, store, _floor(stored.host, stored.id, store))


def _floor_of(result: RunResult) -> dict[str, Any]:
    """Return what later runs need of this one: an A/A run's noise as a log ratio."""
    from kdops.bench.floor import noise

    return {"noise": noise(result)}


def _floor(host: str, but: str, store: Store) -> float:
    """Return the noise of the newest A/A run on the host, 0 when there was none."""
    found = (run.result["noise"] for run in store.runs(host) if run.id != but and run.result)
    return next((float(value) for value in found if value is not None), 0.0)


def _show(result: RunResult, as_json: bool) -> None:
    from kdops.report import terminal
    from kdops.report.document import document, write

    page = write(result, paths.state() / "reports" / result.run)
    if as_json:
        emit_json(document(result))
    else:
        for line in (*columns(terminal.rows(result)), *terminal.verdicts(result)):
            emit(printable(line))
        emit(f"report: {page}")
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _verb(
    words: list[str], store: Store, inventory: Path | None, prompts: list[Path] | None, as_json: bool
) -> None:
    verb, rest = words[0], words[1:]
    if len(rest) != _VERBS[verb]:
        raise UsageError(
            f"kdops ab {verb} takes {_VERBS[verb]} runs",
            cause=f"{len(rest)} given",
            remedy="kdops ab list names them",
        )
    if verb == "list":
        _list(store, as_json)
    elif verb == "show":
        _show(_result(rest[0], store), as_json)
    elif verb == "compare":
        _compare(_result(rest[0], store), _result(rest[1], store))
    else:
        _resume(rest[0], store, inventory, prompts, as_json)


def _list(store: Store, as_json: bool) -> None:
    runs = store.runs()
    if as_json:
        emit_json(
            [
                {"run": r.id, "host": r.host, "created": r.created, "state": r.state, "plan": r.plan}
                for r in runs
            ]
        )
        return
    rows = [("RUN", "HOST", "STATE", "LEGS", "ARMS")]
    for one in runs:
        arms = " ".join(arm["name"] for arm in one.plan["arms"])
        rows.append((one.id, one.host, one.state, f"{len(store.legs(one.id))}", arms))
    emit("\n".join(columns(rows)))


def _compare(first: RunResult, second: RunResult) -> None:
    """Show two runs side by side, without a verdict: their legs were not drawn in one order."""
    rows = [("SET", "ARM", first.run, second.run, "RATIO")]
    for arm in first.arms:
        other = next((one for one in second.arms if one.name == arm.name), None)
        for name, rate in arm.per_set.items():
            if other and name in other.per_set:
                a, b = rate.tokens_per_second, other.per_set[name].tokens_per_second
                rows.append((name, arm.name, f"{a:.1f}", f"{b:.1f}", f"{b / a:.3f}"))
    if len(rows) == 1:
        raise UsageError(
            "these runs share no arm and prompt set",
            cause=f"{first.run}, {second.run}",
            remedy="kdops ab list",
        )
    if first.plan["workload"] != second.plan["workload"]:
        say("warning: the workloads differ; the numbers are not comparable")
    emit("\n".join(columns(rows)))
    say("no verdict: a comparison needs legs of one run, in an order drawn for it")


def _resume(
    id_: str, store: Store, inventory: Path | None, prompts: list[Path] | None, as_json: bool
) -> None:
    from kdops.bench import run
    from kdops.bench.arms import Arm

    stored = store.run(id_)
    plan = stored.plan
    host = load(inventory or Path(plan["inventory"])).one(stored.host)
    chosen = [Arm(arm["name"], arm["profile"], arm["overrides"]) for arm in plan["arms"]]
    legs = len(plan["order"]) // len(chosen)
    job = run.prepare(
        host, chosen, _suite(prompts, plan["quick"]), quick=plan["quick"], legs=legs, seed=plan["seed"]
    )
    if job.plan != plan:
        changed = ", ".join(key for key in plan if job.plan.get(key) != plan[key])
        raise UsageError(
            f"run {stored.id} cannot go on",
            cause=f"since then these changed: {changed}",
            remedy="give the same --prompts, or start a new run: two configurations are no one run",
        )
    _go(job, stored.id, store, as_json)
