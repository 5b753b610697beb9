"""A host without systemd for the guard's unit tests: files are real, units are a small simulation."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kdops.guard.context import Context
from kdops.guard.layout import Layout
from kdops.guard.lease import Clock
from kdops.guard.release import BUNDLE, tree_digest
from kdops.guard.request import Request
from kdops.guard.smoke import Endpoint
from kdops.guard.systemd import Unit

UNIT = "kdtree-lab.service"


@dataclass
class FakeClock(Clock):
    now: float = 1000.0
    boot: str = "boot-1"

    def boottime(self) -> float:
        self.now += 0.01
        return self.now

    def utc(self) -> str:
        return "2026-01-01T00:00:00+00:00"

    def boot_id(self) -> str:
        return self.boot


@dataclass
class FakeSystemd:
    """Units by name; `will` says what a start of a unit leads to: "active", "activating" or "failed"."""

    layout: Layout
    units: dict[str, Unit] = field(default_factory=dict)
    will: dict[str, str] = field(default_factory=dict)
    count: int = 0
    calls: list[str] = field(default_factory=list)

    def show(self, unit: str) -> Unit:
        return self.units.get(unit, Unit())

    def reload(self) -> None:
        self.calls.append("reload")

    def start(self, unit: str) -> None:
        if not self.show(unit).up or unit.startswith("kdops"):
            self.restart(unit)

    def restart(self, unit: str) -> None:
        self.calls.append(f"start {unit}")
        self.count += 1
        state = self.will.get(self.serving(unit), "active")
        known = self.units.get(unit, Unit())
        result = "exit-code" if state == "failed" else "success"
        self.units[unit] = replace(
            known, load="loaded", active=state, invocation=f"run-{self.count}", result=result, exit_code="1"
        )

    def serving(self, unit: str) -> str:
        """The release whose unit file is installed, else the unit's own name."""
        file = self.layout.units / unit
        return file.read_text().split()[-1] if file.is_file() else unit

    def becomes(self, unit: str, active: str, **more: Any) -> None:
        self.units[unit] = replace(self.show(unit), active=active, **more)

    def stop(self, unit: str) -> None:
        self.calls.append(f"stop {unit}")
        self.becomes(unit, "inactive")

    def enable(self, unit: str) -> None:
        self.becomes(unit, self.show(unit).active, enabled="enabled")

    def disable(self, unit: str) -> None:
        self.becomes(unit, self.show(unit).active, enabled="disabled")

    def journal(self, invocation: str, lines: int) -> tuple[str, ...]:
        return (f"last words of {invocation}",)


@dataclass
class GuardHost:
    ctx: Context
    systemd: FakeSystemd
    clock: FakeClock
    smoke: dict[str, Any]

    @property
    def layout(self) -> Layout:
        return self.ctx.layout

    def reboot(self) -> None:
        """Power lost and back: /run is empty, nothing runs, enabled units are about to start."""
        self.clock.boot = self.clock.boot + "+"
        self.layout.lease.unlink(missing_ok=True)
        self.layout.trial(UNIT).unlink(missing_ok=True)
        for name, unit in self.systemd.units.items():
            self.systemd.units[name] = replace(unit, active="inactive", invocation="", restarts="0")

    def expire(self) -> None:
        self.clock.now += 10_000


def files(release: str, unit: str = UNIT) -> dict[str, bytes]:
    """The bundle of a release whose unit file ends with its id."""
    content = {unit: f"[Service]\n# {release}\n".encode(), "launch.yaml": b"port: 1\n", "engine.env": b""}
    site = {"kdtree_engine/__init__.py": b"x = 1\n"}
    manifest = {
        "release_id": release,
        "unit": unit,
        "service": "lab",
        "files": {name: hashlib.sha256(body).hexdigest() for name, body in content.items()},
        "engine_digest": tree_digest(site),
        "lock_digest": "abcdefabcdef",
        "url": "http://127.0.0.1:1",
        "port": 1,
        "smoke": {"tokens": 8, "timeout": 5},
        "expected": {},
    }
    return {
        **content,
        **{f"site/{k}": v for k, v in site.items()},
        "manifest.json": json.dumps(manifest).encode(),
    }


def upload(host: GuardHost, bundle: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(host.layout.partial / BUNDLE, "w") as archive:
        for name, body in bundle.items():
            archive.writestr(name, body)


def request(release: str, id_: str = "c1", **more: Any) -> Request:
    return Request(**{"id": id_, "release": release, "unit": UNIT, "service": "lab", "who": "ann", **more})


def make_host(root: Path) -> GuardHost:
    layout = Layout(root)
    (layout.venvs / "abcdefabcdef/bin").mkdir(parents=True)
    (layout.venvs / "abcdefabcdef/bin/python").touch()
    systemd, clock = FakeSystemd(layout), FakeClock()
    smoke: dict[str, Any] = {"tokens": 16}

    def probe(_endpoint: Endpoint, _tokens: int, _expected: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(error := smoke.get("error"), Exception):
            raise error
        return smoke

    return GuardHost(Context(layout, systemd, clock, probe, lambda _: {}), systemd, clock, smoke)
