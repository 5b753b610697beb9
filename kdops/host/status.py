"""The state of one host's service, as frozen values read from the probe's JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from kdops import throttle
from kdops.guard.layout import by_hand
from kdops.loose import items, mapping, number, text


@dataclass(frozen=True)
class UnitState:
    """The unit as systemd(1) reports it. `since` is seconds in the present state; memory is in bytes.

    job: id of a queued or running start, stop or restart, else 0. exit_code is waitid(2)'s si_code (1
    exited, 2 killed, 3 dumped), exit_status the status or the signal.
    """

    name: str
    load: str = "not-found"
    active: str = "inactive"
    sub: str = "dead"
    enabled: str = ""
    status_text: str = ""
    invocation: str = ""
    restarts: int = 0
    result: str = "success"
    exit_code: int = 0
    exit_status: int = 0
    main_pid: int = 0
    need_reload: bool = False
    drop_ins: tuple[str, ...] = ()
    fragment: str = ""
    memory: int | None = None
    since: float | None = None
    job: int = 0

    @property
    def exists(self) -> bool:
        """True if a unit file is there."""
        return self.load == "loaded"

    @property
    def absence(self) -> str:
        """Why systemd has no such unit to start; a deploy puts it there."""
        if self.load == "not-found":
            return "nothing is deployed"
        if self.load == "masked":
            return f"{self.name} is masked: its file there is a link to /dev/null"
        return f"{self.name} cannot be loaded: systemd says {self.load}"

    @property
    def words(self) -> str:
        """What it does now, in one line."""
        told = f"  {self.status_text}" if self.main_pid and self.status_text else ""
        return f"{self.active} ({self.sub}){told}"

    @property
    def told(self) -> Mapping[str, str]:
        """The key=value words of STATUS=: the launcher's `phase`, or `running`, `queued` and `al`."""
        return dict(word.partition("=")[::2] for word in self.status_text.split() if "=" in word)


@dataclass(frozen=True)
class EngineState:
    """The engine's HTTP side. health: "ok", "starting", "refused", "no answer" or "http NNN". address: as its
    own host reaches it."""

    port: int
    health: str
    metrics: str | None = None
    server_info: Mapping[str, Any] | None = None
    address: str = "127.0.0.1"


@dataclass(frozen=True)
class GpuSample:
    """One GPU: memory in MiB, utilization in percent, °C, W, MHz; None where the driver has no value.

    throttle: why its clock is held down now, in words of `kdops.throttle`; nothing when it was set so.
    """

    index: str
    name: str
    memory_used: float | None
    memory_total: float | None
    utilization: float | None
    temperature: float | None
    power: float | None
    clock: float | None
    throttle: tuple[str, ...] = ()

    @property
    def busy(self) -> float | None:
        """Utilization, 0 to 1."""
        return None if self.utilization is None else self.utilization / 100

    @property
    def memory_use(self) -> float | None:
        """Share of its memory in use, 0 to 1."""
        if self.memory_used is None or not self.memory_total:
            return None
        return self.memory_used / self.memory_total


@dataclass(frozen=True)
class OpenTransaction:
    """The deploy in progress. lease_left: seconds until the guard takes over (0: the client is gone)."""

    release: str
    phase: str
    who: str
    why: str
    opened_at: str
    lease_left: float


class Why(NamedTuple):
    """Why a deploy failed."""

    title: str
    cause: str
    remedy: str


@dataclass(frozen=True)
class LastOutcome:
    """How the last transaction ended. evidence: lines of the journal that were recorded with its failure."""

    result: str
    release: str
    serves: str | None
    by: str
    at: str
    failure: Why | None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostStatus:
    """Everything one probe saw. `time` is the host's clock (seconds since the epoch); disk_free in bytes."""

    host: str
    unit: UnitState
    release: str | None = None
    profile: str | None = None
    committed: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()
    transaction: OpenTransaction | None = None
    outcome: LastOutcome | None = None
    engine: EngineState | None = None
    gpus: tuple[GpuSample, ...] = ()
    boot_id: str = ""
    time: float = 0.0
    disk_free: int | None = None
    load: tuple[float, ...] = ()
    errors: Mapping[str, str] | None = None


def parse(host: str, report: Mapping[str, Any]) -> HostStatus:
    """Return the status in the probe's document. Missing, null or odd values become the field's default."""
    manifest = mapping(report.get("manifest"))
    txn = mapping(report.get("txn"))
    unit = unit_state(
        text(report.get("unit")), mapping(report.get("properties")), number(report.get("monotonic"))
    )
    return HostStatus(
        host=host,
        unit=unit,
        release=text(report.get("current")) or None,
        profile=text(manifest.get("profile")) or None,
        committed=tuple(text(mapping(c).get("release")) for c in items(txn.get("committed"))),
        drift=_drift(unit, manifest, report),
        transaction=_transaction(mapping(txn.get("transaction")), report),
        outcome=_outcome(mapping(txn.get("outcome"))),
        engine=_engine(mapping(report.get("engine"))),
        gpus=tuple(_gpu(row) for row in items(report.get("gpus")) if isinstance(row, list)),
        boot_id=text(report.get("boot_id")).strip(),
        time=number(report.get("time")) or 0.0,
        disk_free=_whole(report.get("disk_free")),
        load=tuple(number(value) or 0.0 for value in items(report.get("load"))),
        errors={str(key): text(value) for key, value in mapping(report.get("errors")).items()},
    )


def unit_state(name: str, properties: Mapping[str, Any], monotonic: float | None) -> UnitState:
    """Return the unit in `systemctl show`'s properties; monotonic: the host's clock in seconds."""
    told = {key: text(value) for key, value in properties.items()}
    get = told.get
    changed = number(get("StateChangeTimestampMonotonic"))
    return UnitState(
        name=name,
        load=get("LoadState", "not-found"),
        active=get("ActiveState", "unknown"),
        sub=get("SubState", "unknown"),
        enabled=get("UnitFileState", ""),
        status_text=get("StatusText", ""),
        invocation=get("InvocationID", ""),
        restarts=_whole(get("NRestarts")) or 0,
        result=get("Result", ""),
        exit_code=_whole(get("ExecMainCode")) or 0,
        exit_status=_whole(get("ExecMainStatus")) or 0,
        main_pid=_whole(get("MainPID")) or 0,
        need_reload=get("NeedDaemonReload") == "yes",
        drop_ins=tuple(get("DropInPaths", "").split()),
        fragment=get("FragmentPath", ""),
        memory=_whole(get("MemoryCurrent")),
        since=max(0.0, monotonic - changed / 1e6) if monotonic is not None and changed else None,
        job=_whole(get("Job")) or 0,
    )


def _drift(unit: UnitState, manifest: Mapping[str, Any], report: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what differs from the release's manifest, in words; nothing if there is no manifest."""
    files = mapping(manifest.get("files"))
    if not files:
        return ()
    found = []
    expected = files.get(unit.name)
    if expected and report.get("unit_sha256") != expected:
        found.append("unit file edited" if report.get("unit_sha256") else "unit file missing")
    found += [f"drop-in {path}" for path in unit.drop_ins if by_hand(PurePosixPath(path))]
    if unit.need_reload:
        found.append("daemon-reload needed")
    found += [f"release file {text(name)} changed" for name in items(report.get("changed_files"))]
    return tuple(found)


def _transaction(txn: Mapping[str, Any], report: Mapping[str, Any]) -> OpenTransaction | None:
    if not txn:
        return None
    lease = mapping(report.get("lease"))
    until, now = number(lease.get("until")), number(report.get("boottime"))
    ours = (
        lease.get("transaction") == txn.get("id")
        and txn.get("boot_id") == text(report.get("boot_id")).strip()
    )
    left = max(0.0, until - now) if ours and until is not None and now is not None else 0.0
    return OpenTransaction(
        release=text(txn.get("release")),
        phase=text(txn.get("phase")),
        who=text(txn.get("who")),
        why=text(txn.get("why")),
        opened_at=text(txn.get("opened_at")),
        lease_left=left,
    )


def _outcome(outcome: Mapping[str, Any]) -> LastOutcome | None:
    if not outcome:
        return None
    failure = mapping(outcome.get("failure"))
    return LastOutcome(
        result=text(outcome.get("result")),
        release=text(outcome.get("release")),
        serves=text(outcome.get("serves")) or None,
        by=text(outcome.get("by")),
        at=text(outcome.get("at")),
        failure=Why(*(text(failure.get(name)) for name in Why._fields)) if failure else None,
        evidence=tuple(text(line) for line in items(failure.get("evidence"))),
    )


def _engine(engine: Mapping[str, Any]) -> EngineState | None:
    if not engine:
        return None
    code, error = engine.get("health"), text(engine.get("health_error")).lower()
    if isinstance(code, int):
        health = {200: "ok", 503: "starting"}.get(code, f"http {code}")
    else:
        health = "refused" if "refused" in error else "no answer"
    info = engine.get("server_info")
    return EngineState(
        port=_whole(engine.get("port")) or 0,
        health=health,
        metrics=text(engine.get("metrics")) or None,
        server_info=info if isinstance(info, dict) else None,
        address=text(engine.get("address")) or "127.0.0.1",
    )


def _gpu(row: list[Any]) -> GpuSample:
    cells = [text(cell) for cell in row] + [""] * 9
    used, total, busy, heat, power, clock = map(number, cells[2:8])
    return GpuSample(cells[0], cells[1], used, total, busy, heat, power, clock, _throttle(cells[8]))


def _throttle(mask: str) -> tuple[str, ...]:
    return tuple(one.words for one in throttle.reasons(mask) if one.kind is not throttle.Kind.CHOSEN)


def _whole(value: Any) -> int | None:
    found = number(value)
    # systemd's "[not set]" is no number, and UINT64_MAX stands for it in older versions
    return int(found) if found is not None and abs(found) < 2**63 else None
