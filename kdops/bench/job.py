"""The plan of a measurement: what runs where, in which order, and what it will cost."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kdops.bench import byte_floor
from kdops.bench.arms import REFERENCE, Arm
from kdops.bench.orders import MOST_LEGS, draw
from kdops.bench.statistics import ALPHA, EQUIVALENCE_LEGS
from kdops.bench.verdict import REFERENCE_LEG, smallest_p
from kdops.bench.workloads import Stage, Suite, count, reference
from kdops.deploy import bundle as bundles
from kdops.errors import UsageError
from kdops.fleet import EngineConfig, Host, engine_config, facts
from kdops.fleet.settings import LINEAR, PLAIN

ON_HOST, THROUGH_SSH = "host", "ssh"
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

    def stages(self, position: int) -> tuple[Stage, ...]:
        """Return what the leg at `position` sends."""
        if position == REFERENCE_LEG:
            return reference(self.suite, margins=not all(map(exact, self.configs)))
        return self.suite.stages

    @property
    def tokens(self) -> dict[int, int]:
        """Output tokens of each leg, by position."""
        return {position: count(self.stages(position)) for position, _ in self.positions}

    def name(self, position: int) -> str:
        """Return the name of the arm of that leg."""
        if position == REFERENCE_LEG:
            return f"{REFERENCE} (reference)"
        return str(self.plan["arms"][self.plan["order"][position]]["name"])


def prepare(
    host: Host,
    arms: Sequence[Arm],
    make_suite: Callable[[int], Suite],
    *,
    quick: bool,
    legs: int | None = None,
    seed: int | None = None,
    client: str = ON_HOST,
) -> Job:
    """Plan a run; nothing is touched. make_suite: from the shortest context length of the arms.

    client: ON_HOST or THROUGH_SSH, where the load client runs. legs: starts an arm; None takes the fewest,
    from 4 up, whose order can give a verdict for every candidate.

    Raises UsageError for fewer than two arms, a number of legs out of range, or a wrong setting.
    """
    if len(arms) < 2:
        raise UsageError(
            "one arm cannot be compared",
            cause=f"arms: {', '.join(arm.name for arm in arms) or 'none'}",
            remedy="name two profiles (the same one twice is an A/A), or several values with --set",
        )
    seed = random.SystemRandom().randrange(2**31) if seed is None else seed
    if quick:
        legs = 1
    elif legs is None:
        legs = enough(len(arms), seed)
    if not 1 <= legs <= MOST_LEGS:
        raise UsageError(
            f"{legs} legs an arm", cause=f"1 to {MOST_LEGS} are possible", remedy="the default is 4"
        )
    extra = Arm(REFERENCE, REFERENCE, {})
    configs = tuple(engine_config(host, arm.profile, arm.overrides) for arm in (*arms, extra))
    speculate = any(config.algorithm != PLAIN for config in configs[: len(arms)])
    # Outside fp32 the margins decide, and a measured leg has none: asking for them would slow it down.
    measured = any(arm.profile == REFERENCE for arm in arms) and all(map(exact, configs))
    comparing = speculate and not measured
    configs = configs if comparing else configs[: len(arms)]
    suite = make_suite(min(context(host, config) for config in configs))
    needs_reference = comparing and bool(suite.greedy)
    every = (*arms, extra) if needs_reference else tuple(arms)
    configs = configs[: len(every)]
    made = tuple(bundles.build(config, host) for config in configs)
    order = draw(len(arms), legs, seed)
    described = [
        _describe(host, arm, config, bundle.release)
        for arm, config, bundle in zip(every, configs, made, strict=True)
    ]
    plan = {
        "arms": described[: len(arms)],
        "reference": needs_reference,
        "order": list(order),
        "seed": seed,
        "quick": quick,
        "smallest_p": smallest_p(order),
        **_shared(host, suite, client),
    }
    return Job(host, plan, suite, configs, made)


def enough(arms: int, seed: int) -> int:
    """Return the fewest legs an arm, 4 to MOST_LEGS, whose order reaches p <= 0.05 for every candidate."""
    counts = range(EQUIVALENCE_LEGS, MOST_LEGS)
    return next((n for n in counts if smallest_p(draw(arms, n, seed)) <= ALPHA), MOST_LEGS)


def context(host: Host, config: EngineConfig) -> int:
    """Return the longest context in tokens that is known to work: setting, model and token pool."""
    model = facts.known(host, config)
    positions = model.positions if model else None
    known = [config.context_length, config.max_total_tokens, positions]
    return min((n for n in known if isinstance(n, int)), default=_SAFE_CONTEXT)


def single(
    host: Host,
    profile: str | None,
    release: str,
    make_suite: Callable[[int], Suite],
    *,
    quick: bool,
    client: str = ON_HOST,
) -> Job:
    """Plan one leg of what serves now, without a start of its own. profile and release: the serving ones.

    What the inventory would render today may be another release: one with --set, say, was deployed.
    """
    config = engine_config(host, profile, {})
    made = bundles.build(config, host)
    suite = make_suite(context(host, config))
    plan = {
        "arms": [_describe(host, Arm(config.profile, config.profile, {}), config, release)],
        "reference": False,
        "order": [0],
        "seed": 0,
        "quick": quick,
        "smallest_p": None,
        **_shared(host, suite, client),
    }
    return Job(host, plan, suite, (config,), (made,))


def _shared(host: Host, suite: Suite, client: str) -> dict[str, Any]:
    return {
        "sets": list(suite.sets),
        "sampling": {name: one.document() for name, one in suite.sampling.items()},
        "load": {**asdict(suite.load), "levels": list(suite.load.levels)},
        "client": client,
        "workload": suite.digest,
        "inventory": str(host.inventory.absolute()),
    }


def exact(config: EngineConfig) -> bool:
    """True if tokens must equal those of the autoregressive arm: fp32 has no ties to flip."""
    return str(config.dtype) == "float32"


def _describe(host: Host, arm: Arm, config: EngineConfig, release: str) -> dict[str, Any]:
    return {
        "name": arm.name,
        "profile": arm.profile,
        "overrides": dict(arm.overrides),
        "release": release,
        "speculates": config.algorithm != PLAIN,
        "samples": config.algorithm != LINEAR or config.device != "cpu",
        "dtype": str(config.dtype),
        "floor": byte_floor.of(host, config),
    }


def cost(job: Job, loads: Sequence[float]) -> str:
    """Return what the run will take, from earlier starts on this host (seconds), as one line."""
    start = sorted(loads)[len(loads) // 2] if loads else _LOAD_SECONDS
    starts, p = len(job.positions), job.plan["smallest_p"]
    verdict = "one start an arm is no verdict" if job.plan["quick"] else f"smallest reachable p {p:.3f}"
    return (
        f"{starts} starts and one to restore, about {(starts + 1) * start / 60:.0f} min of loading and "
        f"{sum(job.tokens.values()):,} generated tokens; {job.host.name} serves nobody else meanwhile; "
        f"{verdict}, order drawn with seed {job.plan['seed']}"
    )
