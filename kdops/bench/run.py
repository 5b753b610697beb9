"""A measurement, leg by leg: start, measure, next, restore; a run that was cut goes on."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kdops.bench import host_checks
from kdops.bench.job import Job
from kdops.bench.measure import measure
from kdops.bench.progress import Progress
from kdops.bench.stored import again
from kdops.check import before_deploy
from kdops.deploy.client import Options
from kdops.deploy.progress import Lines
from kdops.deploy.trial import Trial
from kdops.errors import ExitCode, KdopsError
from kdops.host import HostConnection
from kdops.store import Store


def begin(job: Job, store: Store) -> str:
    """Record the run and return its id."""
    now = datetime.now(UTC)
    run = f"{now:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:4]}"
    store.open_run(run, job.host.name, now.isoformat(timespec="seconds"), job.plan)
    return run


def execute(
    job: Job,
    run: str,
    store: Store,
    options: Options,
    say: Callable[[str], None],
    show: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Measure every leg that is not there yet, then restore what served before.

    Raises KdopsError; on Ctrl-C with exit code 130. What was measured stays, and `resume` goes on from it.
    """
    measured = store.legs(run)
    left = [pair for pair in job.positions if pair[0] not in measured]
    if not left:
        return
    tokens, total = job.tokens, len(job.positions)
    before = sum(tokens[position] for position in measured)
    now = Progress(0, total, "", "", before, sum(tokens.values()), before)
    began = time.monotonic()
    trial = Trial(job.host, job.bundles[left[0][1]], options, say)
    store.set_state(run, "running")
    try:
        _check(job, [arm for _, arm in left], say)
        with trial:
            for position, arm in left:
                now = replace(now, leg=len(store.legs(run)) + 1, name=job.name(position), stage="")
                show(now)
                say(f"leg {now.leg} of {total}: {now.name}{_eta(now.left(time.monotonic() - began))}")
                with HostConnection(job.host) as connection:
                    host_checks.require_free_gpus(connection, job.bundles[arm].unit)
                trial.serve(job.bundles[arm])

                def shown(stage: str, more: int) -> None:
                    nonlocal now
                    now = replace(now, stage=stage, done=now.done + more)
                    show(now)

                measure(job, run, position, arm, store, say, shown)
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


def _check(job: Job, arms: Sequence[int], say: Callable[[str], None]) -> None:
    """Run the check of `kdops deploy` once for each release, before what serves is touched.

    A leg asks its quick rows only. Raises KdopsError (exit 5).
    """
    checked: set[str] = set()
    for arm in arms:
        bundle = job.bundles[arm]
        if bundle.release not in checked:
            checked.add(bundle.release)
            before_deploy(job.host, job.configs[arm], bundle)(Lines(say))


def once(job: Job, run: str, store: Store, say: Callable[[str], None]) -> None:
    """Measure what serves now, the only leg of the run. Raises KdopsError; on Ctrl-C with exit code 130."""
    try:
        measure(job, run, 0, 0, store, say)
    except KeyboardInterrupt:
        store.set_state(run, "interrupted")
        raise KdopsError(
            "interrupted",
            cause="what serves was not touched; the run's only leg is not complete",
            remedy=again(job.host.name),
            code=ExitCode.INTERRUPTED,
        ) from None
    except KdopsError:
        store.set_state(run, "failed")
        raise


def _eta(left: float | None) -> str:
    return "" if left is None else f", about {left / 60:.0f} min to go"
