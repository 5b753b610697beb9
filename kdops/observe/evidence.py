"""Evidence of an engine: asked of its host, or read from a measurement on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from kdops import fleet
from kdops.diagnose import counters, history, journal, known, measured, unit_text
from kdops.diagnose.evidence import Change, Evidence, GpuUse, LastDeploy, Settings
from kdops.errors import KdopsError, UsageError
from kdops.fleet import Host
from kdops.fleet.settings import values
from kdops.guard.layout import ON_HOST
from kdops.host import HostConnection, HostStatus, probe
from kdops.loose import document
from kdops.serving import metrics
from kdops.store import Store, StoredRun

_LINES = 100_000
_DEADLINE_S = 30.0
_UNIT = """
systemctl show "$1" -p Id,LoadState,ActiveState,StateChangeTimestamp,NRestarts,CPUQuotaPerSecUSec
cat "/sys/fs/cgroup$(systemctl show -P ControlGroup "$1")/cpu.stat" 2>/dev/null; true"""
_MANIFEST = f'cat "{ON_HOST.releases}/$1/manifest.json" 2>/dev/null; true'


@dataclasses.dataclass(frozen=True)
class Run:
    """A measurement: its report.json, its host where an inventory here names it, its requests, each with
    its arm."""

    document: Mapping[str, Any]
    host: Host | None
    samples: Sequence[tuple[str, Mapping[str, Any]]]


def run_of(one: StoredRun, store: Store, host: Host | None) -> Run:
    """Return a measurement in the store. Raises KdopsError when legs are missing."""
    from kdops.bench import stored  # with the report it brings scipy, which nobody waits for without a run
    from kdops.report import document as reports

    return Run(reports.document(stored.result(one, store)), host, stored.samples(one, store))


def from_host(host: Host, connection: HostConnection, store: Store) -> Evidence:
    """Ask the host, this machine's record of it, and the last measurement of its serving release."""
    status = probe(connection)
    manifest = _manifest(connection, status.release)
    profile = str(manifest.get("profile") or status.profile or "")
    absent: dict[str, str] = {}
    found = _of_inventory(host, profile, absent)
    settings = manifest.get("settings")
    engine = status.engine
    if engine is None or engine.server_info is None:
        absent["server_info"] = "the engine does not answer"
    if not status.gpus:
        absent["GPUs"] = "no NVIDIA driver there"
    if isinstance(settings, dict):
        told = Settings(settings, engine.server_info if engine else None)
        found = dataclasses.replace(found, settings=told, changes=_changes(connection, status, settings))
    else:
        absent["settings"] = "nothing is deployed there"
    # -o cat is the message alone: the least to send, and what the parsers want.
    lines = ["journalctl", "--quiet", "--all", "--output=cat", f"--lines={_LINES}"]
    text = connection.run(["sh", "-c", _UNIT, "sh", status.unit.name], timeout=_DEADLINE_S).text
    counted = counters.parse(engine.metrics) if engine and engine.metrics else None
    found = dataclasses.replace(
        found,
        journal=journal.read(connection.stream([*lines, f"--unit={status.unit.name}"])),
        counters=counted,
        penalties=bool(counted and counted.fallbacks.get("penalties")) or None,
        unit=unit_text.unit(text, status.drift),
        failed_deploy=_failed_deploy(status),
        gpus=_gpus(status),
        past=history.pasts(store.marks(host.name, profile)),
        absent=absent,
    )
    return _with_run(found, _last_run(host, status, store, absent), absent)


def from_run(run: Run, store: Store) -> Evidence:
    """Read one finished measurement."""
    host, told = run.host, run.document
    absent = {"journal": "not part of a measurement", "unit": "not part of a measurement"}
    arms = told["plan"]["arms"]
    profile = str(arms[-1]["profile"])
    if host is None:
        absent["inventory"] = f"{told['host']} is in no inventory here, so its GPU and model are unknown"
        found = Evidence(host=str(told["host"]), profile=profile)
    else:
        found = _of_inventory(host, profile, absent)
    basis = str(told["plan"].get("workload", ""))
    past = history.pasts(store.marks(found.host, arms[-1]["name"].partition("#")[0]), basis)
    return _with_run(dataclasses.replace(found, past=past, absent=absent), run, absent)


def _of_inventory(host: Host, profile: str, absent: dict[str, str]) -> Evidence:
    try:
        config = fleet.engine_config(host, profile or None, {})
    except UsageError as error:
        absent["inventory"] = f"the profile {profile!r} is not in it any more: {error.title}"
        return Evidence(host=host.name, profile=profile, gpu=host.gpu)
    floor, pool = known.memory(host, config)
    return Evidence(
        host=host.name,
        profile=config.profile,
        gpu=host.gpu,
        floor=floor,
        predicted_pool=pool,
        drafter=known.drafter(host, config),
        settings=Settings(values(config)),
    )


def _with_run(found: Evidence, run: Run | None, absent: dict[str, str]) -> Evidence:
    """Add a measurement, or say that there is none."""
    if run is None:
        absent.setdefault("measurement", f"none of this release: kdops bench {found.host}")
        return dataclasses.replace(found, absent=absent)
    told = measured.from_document(run.document, _arm_settings(run.document, run.host))
    return dataclasses.replace(
        found,
        floor=found.floor or told.floor,
        stretches=(*told.stretches, *measured.prefix_hits(run.samples)),
        measurement=told.measurement,
        gpus=told.gpus or found.gpus,
        absent=absent,
    )


def _arm_settings(told: Mapping[str, Any], host: Host | None) -> dict[str, dict[str, Any]]:
    """Return arm → the settings it ran with, as far as the inventory still gives them."""
    found = {}
    for arm in told["plan"]["arms"] if host else ():
        try:
            assert host is not None
            found[arm["name"]] = values(fleet.engine_config(host, arm["profile"], arm.get("overrides")))
        except UsageError:
            continue  # the profile has gone since
    return found


def _last_run(host: Host, status: HostStatus, store: Store, absent: dict[str, str]) -> Run | None:
    """Return the newest measurement that has the serving release among its arms, or None."""
    for one in store.runs(host.name):
        if one.state == "done" and status.release in one.releases:
            try:
                return run_of(one, store, host)
            except KdopsError as error:
                absent["measurement"] = f"{error.title}: {error.cause}"
    return None


def _changes(
    connection: HostConnection, status: HostStatus, settings: Mapping[str, Any]
) -> tuple[Change, ...]:
    """Return what differs from the last good release: the newest committed one that is not the present.

    After a deploy that failed: what it had changed against the release that serves.
    """
    if (last := _failed_deploy(status)) and last.release != status.release:
        tried = _manifest(connection, last.release).get("settings")
        return known.changes(settings, tried) if isinstance(tried, dict) else ()
    before = [release for release in status.committed if release != status.release]
    good = _manifest(connection, before[-1]).get("settings") if before else None
    return known.changes(good, settings) if isinstance(good, dict) else ()


def _failed_deploy(status: HostStatus) -> LastDeploy | None:
    last = status.outcome
    if last is None or last.failure is None:
        return None
    return LastDeploy(last.release, *last.failure, last.evidence)


def _manifest(connection: HostConnection, release: str | None) -> dict[str, Any]:
    if not release or "/" in release:
        return {}
    return document(connection.run(["sh", "-c", _MANIFEST, "sh", release], timeout=_DEADLINE_S).text)


def _gpus(status: HostStatus) -> tuple[GpuUse, ...]:
    """One sample says how busy a GPU is only while requests run."""
    running = (
        metrics.parse(status.engine.metrics).running if status.engine and status.engine.metrics else None
    )
    return tuple(
        GpuUse(
            source=f"GPU {gpu.index}",
            busy=gpu.busy,
            clock=gpu.clock,
            power=gpu.power,
            temperature=gpu.temperature,
            reasons=gpu.throttle,
            working=bool(running),
        )
        for gpu in status.gpus
    )
