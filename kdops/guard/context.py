"""What every guard command works with: the host's files, clocks and systemd, and the smoke test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kdops.guard import release, smoke
from kdops.guard.layout import Layout
from kdops.guard.lease import Clock, Leases
from kdops.guard.model import ADOPTED, Phase, Transaction
from kdops.guard.store import Store
from kdops.guard.systemd import Manager, Systemctl


@dataclass(frozen=True)
class Context:
    """`probe` and `inspect` are replaced in unit tests only, where no engine runs."""

    layout: Layout = field(default_factory=Layout)
    systemd: Manager = field(default_factory=Systemctl)
    clock: Clock = field(default_factory=Clock)
    probe: Callable[[smoke.Endpoint, int, dict[str, Any]], dict[str, Any]] = smoke.run
    inspect: Callable[[smoke.Endpoint], dict[str, Any]] = smoke.effective

    @property
    def store(self) -> Store:
        return Store(self.layout)

    @property
    def leases(self) -> Leases:
        return Leases(self.layout, self.clock)

    def record(self, txn: Transaction) -> Transaction:
        """Write the open transaction down."""
        self.store.save(replace(self.store.load(), transaction=txn))
        return txn

    def enter(self, txn: Transaction, phase: Phase) -> Transaction:
        """Write down that `phase` begins, before anything of it is done."""
        return self.record(replace(txn, phase=phase, phases={**txn.phases, phase: self.clock.boottime()}))

    def rebooted(self, txn: Transaction) -> bool:
        return txn.boot_id != self.clock.boot_id()

    def endpoint(self, of: release.Release, timeout: float) -> smoke.Endpoint:
        return smoke.Endpoint(of.manifest["url"], self.layout.api_key(of.service), timeout)

    def smoke_test(self, txn: Transaction) -> dict[str, Any]:
        """Raises KdopsError (exit 6) when the engine is unhealthy. An adopted service is only asked to be
        active.
        """
        if txn.release.startswith(ADOPTED):
            return {"active": True}
        new = release.load(self.layout, txn.release)
        test = new.manifest["smoke"]
        return self.probe(self.endpoint(new, test["timeout"]), test["tokens"], new.manifest["expected"])

    def clean(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        """Blank out every API key of this host: lines go into the record and to the client."""
        folder = self.layout.api_key("any").parent
        keys = [f.read_text().strip() for f in folder.rglob("*.api_key")] if folder.is_dir() else []
        for key in filter(None, keys):
            lines = tuple(line.replace(key, "***") for line in lines)
        return lines
