"""A measurement from plan to result: start, warm up, flush, measure, next; samples to disk as they come."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kdops.bench import byte_floor, client, host_checks
from kdops.bench.arms import REFERENCE, Arm
from kdops.bench.leg import analyse
from kdops.bench.orders import MOST_LEGS, draw
from kdops.bench.results import RunResult
from kdops.bench.verdict import REFERENCE_LEG, build, smallest_p
from kdops.bench.workloads import Stage, Suite, reference
from kdops.deploy import bundle as bundles
from kdops.deploy.client import Options
from kdops.deploy.trial import Trial
from kdops.errors import ExitCode, KdopsError, UsageError
from kdops.fleet import EngineConfig, Host, engine_config, facts
from kdops.host import HostConnection
from kdops.store import Store, StoredRun

_LOAD_SECONDS = 60.0
_SAFE_CONTEXT = 4096


@dataclass(frozen=True)
class Job:
    """What runs where. configs, bundles: one for each arm, the reference arm last if the run has one."""

    host: Host
    plan: Mapping[str, Any]
    suite: Suite
    configs: tuple[EngineConfig, ...]
    bundles: tuple[bundles.Bundle, ...]

    @property
    def positions(self) -> list[tuple[int, int]]:
        """(position, index of the arm) of every leg in the order it runs; the reference first."""
        order = list(enumerate(self.plan["order"]))
        return [(REFERENCE_LEG, len(self.bundles) - 1), *order] if self.plan["reference"] else order


def prepare(
    host: Host,
    arms: Sequence[Arm],
    make_suite: Callable[[int], Suite],
    *,
    quick: bool,
    legs: int,
    seed: int | None = None,
) -> Job:
    """Plan a run; nothing is touched. make_suite: from the shortest context length of the arms.

    Raises UsageError for fewer than two arms, a number of legs out of range, or a wrong setting.
    """
    if len(arms) < 2:
        raise UsageError(
            "one arm cannot be compared",
            cause=f"arms: {', '.join(arm.name for arm in arms) or 'none'}",
            remedy="name two profiles (the same one twice is an A/A), or several values with --set",
        )
    legs = 1 if quick else legs
    if not 1 <= legs <= MOST_LEGS:
        raise UsageError(
            f"{legs} legs an arm", cause=f"1 to {MOST_LEGS} are possible", remedy="the default is 4"
        )
    extra = Arm(REFERENCE, REFERENCE, {})
    configs = tuple(engine_config(host, arm.profile, arm.overrides) for arm in (*arms, extra))
    # Outside fp32 the margins decide, and a measured leg has none: asking for them would slow it down.
    measured = any(arm.profile == REFERENCE for arm in arms) and all(map(_exact, configs))
    needs_reference = not measured
    every = (*arms, extra) if needs_reference else tuple(arms)
    configs = configs[: len(every)]
    suite = make_suite(min(context(host, config) for config in configs))
    made = tuple(bundles.build(config, host) for config in configs)
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    order = draw(len(arms), legs, seed)
    described = [_describe(host, *each) for each in zip(every, configs, made, strict=True)]
    plan = {
        "arms": described[: len(arms)],
        "reference": needs_reference,
        "order": list(order),
        "seed": seed,
        "quick": quick,
        "smallest_p": smallest_p(order),
        "sets": list(suite.sets),
        "workload": suite.digest,
        "inventory": str(host.inventory.absolute()),
    }
    return Job(host, plan, suite, configs, made)


def context(host: Host, config: EngineConfig) -> int:
    """Return the longest context in tokens that is known to work: setting, model and token pool."""
    model = facts.known(host, config)
    positions = model.positions if model else None
    known = [config.context_length, config.max_total_tokens, positions]
    return min((n for n in known if isinstance(n, int)), default=_SAFE_CONTEXT)


def single(host: Host, profile: str | None, make_suite: Callable[[int], Suite]) -> Job:
    """Plan one leg of what serves now, without a start of its own. profile: the serving release's."""
    config = engine_config(host, profile, {})
    made = bundles.build(config, host)
    suite = make_suite(context(host, config))
    plan = {
        "arms": [_describe(host, Arm(config.profile, config.profile, {}), config, made)],
        "reference": False,
        "order": [0],
        "seed": 0,
        "quick": True,
        "smallest_p": None,
        "sets": list(suite.sets),
        "workload": suite.digest,
        "inventory": str(host.inventory.absolute()),
    }
    return Job(host, plan, suite, (config,), (made,))


def _exact(config: EngineConfig) -> bool:
    return str(config.dtype) == "float32"


def _describe(host: Host, arm: Arm, config: EngineConfig, bundle: bundles.Bundle) -> dict[str, Any]:
    return {
        "name": arm.name,
        "profile": arm.profile,
        "overrides": dict(arm.overrides),
        "release": bundle.release,
        "speculates": config.algorithm != REFERENCE,
        "dtype": str(config.dtype),
        "floor": byte_floor.of(host, config),
    }


def cost(job: Job, loads: Sequence[float]) -> str:
    """Return what the run will take, from earlier starts on this host (seconds), as one line."""
    start = sorted(loads)[len(loads) // 2] if loads else _LOAD_SECONDS
    starts = len(job.positions)
    return (
        f"{starts} starts and one to restore, about {(starts + 1) * start / 60:.0f} min of loading and "
        f"{job.suite.tokens * starts:,} generated tokens; {job.host.name} serves nobody else meanwhile; "
        f"smallest reachable p {job.plan['smallest_p']:.3f}, order drawn with seed {job.plan['seed']}"
    )


def begin(job: Job, store: Store) -> str:
    """Record the run and return its id."""
    now = datetime.now(UTC)
    run = f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
    store.open_run(run, job.host.name, now.isoformat(timespec="seconds"), job.plan)
    return run


def execute(job: Job, run: str, store: Store, options: Options, say: Callable[[str], None]) -> None:
    """Measure every leg that is not there yet, then restore what served before.

    Raises KdopsError; on Ctrl-C with exit code 130. What was measured stays, and `resume` goes on from it.
    """
    left = [pair for pair in job.positions if pair[0] not in store.legs(run)]
    if not left:
        return
    began, total = time.monotonic(), len(job.positions)
    store.set_state(run, "running")
    try:
        with Trial(job.host, job.bundles[left[0][1]], options, say) as trial:
            for done, (position, arm) in enumerate(left):
                number = total - len(left) + done + 1
                say(f"leg {number} of {total}: {_name(job, position, arm)}{_eta(began, done, len(left))}")
                with HostConnection(job.host) as connection:
                    host_checks.require_free_gpus(connection, job.bundles[arm].unit)
                trial.serve(job.bundles[arm])
                measure(job, run, position, arm, store, say)
    except KeyboardInterrupt:
        store.set_state(run, "interrupted")
        raise KdopsError(
            "interrupted",
            cause=f"{trial.restored}; {len(store.legs(run))} of {total} legs are measured",
            remedy=f"go on with: kdops ab resume {run}",
            code=ExitCode.INTERRUPTED,
        ) from None
    except KdopsError as error:
        store.set_state(run, "interrupted" if error.code == ExitCode.INTERRUPTED else "failed")
        remedy = f"{error.remedy}; then go on with: kdops ab resume {run}"
        raise KdopsError(
            error.title, cause=error.cause, remedy=remedy, code=error.code, evidence=error.evidence
        ) from error


def measure(job: Job, run: str, position: int, arm: int, store: Store, say: Callable[[str], None]) -> None:
    """Warm up and measure what serves now as one leg. Raises KdopsError."""
    attempt = store.open_leg(run, position)
    config = job.configs[arm]
    evidence: dict[str, Any] = {"arm": arm, "stages": [], "client": None}
    stages: tuple[Stage, ...] = job.suite.stages
    if position == REFERENCE_LEG:
        stages = reference(job.suite, margins=not all(map(_exact, job.configs)))
    address = str(config.bind)
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    unit = job.bundles[arm].unit
    with HostConnection(job.host) as connection:
        began = host_checks.clock(connection)
        evidence["end_tokens"] = host_checks.ends_of(connection, config.model)
        for sent in ((job.suite.warmup,), stages):
            for told in client.run(connection, client.job(int(config.port), config.service, sent, address)):
                if sent is not stages:
                    continue
                if sample := told.get("sample"):
                    store.add_sample(run, position, attempt, sample["key"], sample)
                    if error := sample.get("error"):
                        raise _request_failed(job.host.name, sample["key"], error)
                elif stage := told.get("stage"):
                    evidence["stages"].append(stage)
                    say(f"  {stage['name']} measured")
                elif end := told.get("end"):
                    evidence["gpus"] = end.pop("gpus", None)
                    evidence["client"] = end
        evidence["suppressed"] = host_checks.dropped_lines(connection, unit, began)
    store.close_leg(run, position, attempt, evidence)


def result(stored: StoredRun, store: Store, floor: float = 0.0) -> RunResult:
    """Analyse what is stored. Raises KdopsError when legs are missing."""
    plan, measured = stored.plan, store.legs(stored.id)
    wanted = [*([REFERENCE_LEG] if plan["reference"] else []), *range(len(plan["order"]))]
    if missing := [position for position in wanted if position not in measured]:
        raise KdopsError(
            f"run {stored.id} is not complete",
            cause=f"{len(missing)} of {len(wanted)} legs are missing",
            remedy=f"kdops ab resume {stored.id}",
        )
    legs = {}
    for position in wanted:
        evidence, samples = measured[position]
        arm = plan["arms"][plan["order"][position]] if position != REFERENCE_LEG else None
        name = arm["name"] if arm else REFERENCE
        legs[position] = analyse(
            name, position, speculates=bool(arm and arm["speculates"]), samples=samples, evidence=evidence
        )
    for position, arm in enumerate(plan["order"]):
        if REFERENCE_LEG not in legs and not plan["arms"][arm]["speculates"]:
            legs[REFERENCE_LEG] = legs[position]
    return build(stored.id, stored.host, stored.created, plan, legs, floor)


def _request_failed(host: str, key: str, error: str) -> KdopsError:
    return KdopsError(
        f"{host}: request {key} failed",
        cause=error,
        remedy=f"correct the prompt or setting, or look at kdops logs {host} -n 50",
    )


def _name(job: Job, position: int, arm: int) -> str:
    return f"{REFERENCE} (reference)" if position == REFERENCE_LEG else job.plan["arms"][arm]["name"]


def _eta(began: float, done: int, total: int) -> str:
    if not done:
        return ""
    minutes = (time.monotonic() - began) / done * (total - done) / 60
    return f", about {minutes:.0f} min to go"
