"""One leg on what serves now: warm up, flush, send, keep every sample as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kdops.bench import client, forwarded, host_checks
from kdops.bench.job import THROUGH_SSH, Job
from kdops.bench.workloads import Stage
from kdops.errors import KdopsError
from kdops.fleet import EngineConfig
from kdops.fleet.settings import address
from kdops.host import HostConnection, probe
from kdops.host.credentials import api_key
from kdops.store import Store

_Send = Callable[[tuple[Stage, ...]], Iterator[Mapping[str, Any]]]


def measure(
    job: Job,
    run: str,
    position: int,
    arm: int,
    store: Store,
    say: Callable[[str], None],
    show: Callable[[str, int], None] = lambda stage, tokens: None,
) -> None:
    """Warm up and measure what serves now as one leg. Raises KdopsError.

    show: told the stage and the tokens of each request as it ends.
    """
    attempt = store.open_leg(run, position)
    config = job.configs[arm]
    evidence: dict[str, Any] = {"arm": arm, "stages": [], "client": None}
    unit = job.bundles[arm].unit
    with HostConnection(job.host) as connection:
        began = host_checks.clock(connection)
        seen = probe(connection)
        evidence["invocation"] = seen.unit.invocation
        evidence["settings"] = dict((seen.engine and seen.engine.server_info) or {})
        evidence["end_tokens"] = host_checks.ends_of(connection, config.model)
        with _client(job, config, connection, evidence) as send:
            for _ in send((job.suite.warmup,)):
                pass
            for told in send(job.stages(position)):
                if sample := told.get("sample"):
                    store.add_sample(run, position, attempt, sample["key"], sample)
                    if error := sample.get("error"):
                        raise _request_failed(job.host.name, sample["key"], error)
                    show(sample["stage"], int(sample["asked"]))
                elif stage := told.get("stage"):
                    evidence["stages"].append(stage)
                    say(f"  {stage['name']} measured")
                elif end := told.get("end"):
                    evidence["gpus"] = end.pop("gpus", None)
                    evidence["client"] = end
        evidence["suppressed"] = host_checks.dropped_lines(connection, unit, began)
    store.close_leg(run, position, attempt, evidence)


@contextmanager
def _client(
    job: Job, config: EngineConfig, connection: HostConnection, evidence: dict[str, Any]
) -> Iterator[_Send]:
    """Yield what sends stages: from the host, or from here through an OpenSSH forward, whose round trip is
    noted in `evidence`.
    """
    port, at = int(config.port), address(config)
    if job.plan["client"] != THROUGH_SSH:
        yield lambda stages: client.run(connection, client.job(port, config.service, stages, at))
        return
    key = api_key(connection)
    with forwarded.forward(job.host, at, port) as local:
        evidence["round_trip"] = forwarded.round_trip(local)
        yield lambda stages: forwarded.run(job.host, local, key, stages)


def _request_failed(host: str, key: str, error: str) -> KdopsError:
    return KdopsError(
        f"{host}: request {key} failed",
        cause=error,
        remedy=f"correct the prompt or setting, or look at kdops logs {host} -n 50",
    )
