"""`kdops ab` and `kdops bench`: which arm is faster, by how much, and why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kdops.cli.ab_bar import watching
from kdops.cli.ab_runs import finish, list_runs, show, show_both
from kdops.cli.config import HOST, INVENTORY, JSON, load
from kdops.cli.generate import not_serving
from kdops.cli.output import say
from kdops.errors import ExitCode, KdopsError, UsageError

if TYPE_CHECKING:
    from kdops.bench.job import Job
    from kdops.bench.workloads import Sampling, Suite
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
BRIEF = typer.Option(False, "--quick", help="One short prompt of each set, no long generation.")
SETS = typer.Option(
    None, "--set", metavar="[ARM:]KEY=V1,V2", help="Override; several values make several arms."
)
LEGS = typer.Option(
    None, "--legs", min=1, max=8, help="Starts an arm: 4, or as many as a verdict on several arms needs."
)
SEED = typer.Option(None, "--seed", help="Seed of the order; drawn and recorded unless given.")
PROMPTS = typer.Option(
    None, "--prompts", help="Your prompts instead: JSONL, OpenAI batch, ShareGPT; repeatable."
)
TOKENS = typer.Option(None, "--tokens", help="New tokens a request of a set; 128 unless given.")
PER_SET = typer.Option(None, "--per-set", help="Prompts of each set; 4 unless given.")
LEVELS = typer.Option("4", "--concurrency", metavar="N,N…", help="Streams at once, beside one at a time.")
ARRIVALS = typer.Option(
    None, "--arrivals", metavar="R", help="Also R requests a second, whatever the engine still has to do."
)
SAMPLING = typer.Option(
    None,
    "--sampling",
    metavar="KEY=V,KEY=V",
    help="Of all prompts, as temperature=0.6,top_p=0.95; else greedy, or as your files say.",
)
CLIENT = typer.Option(
    "host", "--client", metavar="host|ssh", help="Where the load client runs: there, or here through ssh."
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
    legs: int | None = LEGS,
    seed: int | None = SEED,
    prompts: list[Path] | None = PROMPTS,
    tokens: int | None = TOKENS,
    per_set: int | None = PER_SET,
    levels: str = LEVELS,
    arrivals: float | None = ARRIVALS,
    sampling: str | None = SAMPLING,
    client: str = CLIENT,
    yes: bool = YES,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Deploy each arm as a trial, measure, restore what served before, and say which is faster and why.

    Exit code 9: no verdict; 10: not lossless.
    """
    from kdops.bench import arms, job, run
    from kdops.deploy.client import loads
    from kdops.store import Store

    store = Store()
    if words[0] in _VERBS:
        _verb(words, store, inventory, prompts, as_json)
        return
    host = _host(inventory, name)
    chosen = arms.parse(words, settings or [])
    suite = _suite(
        prompts,
        quick,
        tokens=tokens,
        prompts=per_set,
        levels=_levels(levels),
        rate=arrivals,
        sampling=_sampling(sampling),
    )
    plan = job.prepare(host, chosen, suite, quick=quick, legs=legs, seed=seed, client=_where(client))
    say(job.cost(plan, loads(host)))
    _ask(host, yes)
    _go(plan, run.begin(plan, store), store, as_json)


def bench(
    name: str = HOST,
    prompts: list[Path] | None = PROMPTS,
    tokens: int | None = TOKENS,
    per_set: int | None = PER_SET,
    levels: str = LEVELS,
    arrivals: float | None = ARRIVALS,
    sampling: str | None = SAMPLING,
    client: str = CLIENT,
    quick: bool = BRIEF,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Run the suite once on what serves now; nothing is deployed."""
    from kdops.bench import job, run
    from kdops.host import HostConnection, probe
    from kdops.store import Store

    host = load(inventory).one(name)
    with HostConnection(host) as connection:
        seen = probe(connection)
    if seen.unit.active != "active":
        raise not_serving(seen)
    if not seen.release:
        raise KdopsError(
            f"{host.name} serves no release of kdops",
            cause=f"{seen.unit.name} is active, and kdops did not deploy it",
            remedy=f"kdops deploy {host.name}",
            code=ExitCode.REFUSED,
        )
    store = Store()
    suite = _suite(
        prompts,
        quick,
        tokens=tokens,
        prompts=per_set,
        levels=_levels(levels),
        rate=arrivals,
        sampling=_sampling(sampling),
    )
    plan = job.single(host, seen.profile, seen.release, suite, quick=quick, client=_where(client))
    id_ = run.begin(plan, store)
    run.once(plan, id_, store, say)
    finish(id_, store, as_json)


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


def _suite(files: list[Path] | None, quick: bool, **load: Any) -> Callable[[int], Suite]:
    """load: as `workloads.make` takes it."""
    from kdops.bench import workloads

    chosen = load.get("sampling")
    sets = tuple(workloads.read(path, chosen) for path in files or ()) or workloads.built_in()
    return lambda length: workloads.make(sets, quick=quick, context_length=length, **load)


def _sampling(text: str | None) -> Sampling | None:
    from kdops.bench.workloads import sampling

    return None if text is None else sampling.parse(text)


def _levels(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise UsageError(
            f"--concurrency {text!r} cannot be read",
            cause="it must be whole numbers with commas",
            remedy="for example --concurrency 1,4,16",
        ) from None


def _where(client: str) -> str:
    from kdops.bench.job import ON_HOST, THROUGH_SSH

    if client not in (ON_HOST, THROUGH_SSH):
        raise UsageError(
            f"--client {client!r} is unknown",
            cause=f"the load client runs on the {ON_HOST}, or here through {THROUGH_SSH}",
            remedy=f"--client {ON_HOST} measures without the network",
        )
    return client


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


def _go(job: Job, id_: str, store: Store, as_json: bool) -> None:
    from kdops.bench import run
    from kdops.deploy.client import options

    say(f"run {id_}")
    limits = options(job.host, f"A/B {id_}", max(config.start_timeout for config in job.configs))
    with watching() as (note, progress):
        run.execute(job, id_, store, limits, note, progress)
    finish(id_, store, as_json)


def _verb(
    words: list[str], store: Store, inventory: Path | None, prompts: list[Path] | None, as_json: bool
) -> None:
    verb, rest = words[0], words[1:]
    if len(rest) != _VERBS[verb]:
        raise UsageError(
            f"kdops ab {verb} takes {('no run', 'one run', 'two runs')[_VERBS[verb]]}",
            cause=f"{len(rest) or 'none'} given",
            remedy="kdops ab list names them",
        )
    if verb == "list":
        list_runs(store, as_json)
    elif verb == "show":
        show(rest[0], store, as_json)
    elif verb == "compare":
        show_both(rest[0], rest[1], store, as_json)
    else:
        _resume(rest[0], store, inventory, prompts, as_json)


def _resume(
    id_: str, store: Store, inventory: Path | None, prompts: list[Path] | None, as_json: bool
) -> None:
    from kdops.bench import job
    from kdops.bench.arms import Arm
    from kdops.bench.stored import again, planned, readable
    from kdops.bench.workloads import sampling

    stored = planned(id_, store, "inventory", "quick", "seed")
    plan = stored.plan
    if len(plan["arms"]) == 1:
        raise UsageError(
            f"run {stored.id} cannot go on",
            cause="it is a run of kdops bench, and has one leg",
            remedy=again(stored.host),
        )
    host = load(inventory or Path(str(plan["inventory"]))).one(stored.host)
    with readable(stored):
        chosen = [Arm(arm["name"], arm["profile"], arm["overrides"]) for arm in plan["arms"]]
        legs = len(plan["order"]) // len(chosen)
        quick = bool(plan["quick"])
        told = plan.get("load", {})
        drawn = told.get("sampling")
        suite = _suite(prompts, quick, **{**told, "sampling": drawn and sampling.read(drawn, "the plan")})
        client = plan.get("client", job.ON_HOST)
        made = job.prepare(host, chosen, suite, quick=quick, legs=legs, seed=plan["seed"], client=client)
    if made.plan != plan:
        changed = ", ".join(key for key in made.plan if plan.get(key) != made.plan[key])
        raise UsageError(
            f"run {stored.id} cannot go on",
            cause=f"since then these changed: {changed}",
            remedy="give the same --prompts, or start a new run: two configurations are no one run",
        )
    _go(made, stored.id, store, as_json)
