"""Is the client still there? A lease it must renew, ended by time or by a reboot."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kdops.guard.layout import Layout
from kdops.guard.model import Transaction
from kdops.guard.store import write_atomic


class Clock:
    """The host's clocks: CLOCK_BOOTTIME for intervals (setting the clock ends no lease), UTC for people."""

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def utc(self) -> str:
        return datetime.now(UTC).isoformat(timespec="seconds")

    def boot_id(self) -> str:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@dataclass(frozen=True)
class Leases:
    layout: Layout
    clock: Clock

    def renew(self, transaction: str, seconds: float) -> None:
        document = {"transaction": transaction, "until": self.clock.boottime() + seconds}
        write_atomic(self.layout.lease, json.dumps(document).encode())

    def left(self, txn: Transaction) -> float:
        """Return the seconds until the guard takes over; 0 when the client is gone."""
        if txn.boot_id != self.clock.boot_id():
            return 0.0
        try:
            document = json.loads(self.layout.lease.read_bytes())
            if document["transaction"] != txn.id:
                return 0.0
            return max(0.0, float(document["until"]) - self.clock.boottime())
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    def end(self) -> None:
        self.layout.lease.unlink(missing_ok=True)
