"""The host's record of deploys: one JSON object a line, written by its guard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kdops.guard.layout import ON_HOST
from kdops.host.connection import HostConnection
from kdops.loose import document, text
from kdops.text import printable


@dataclass(frozen=True)
class Deploy:
    """One finished transaction. at: UTC; seconds: duration of each phase; failure: title and cause, or
    None."""

    at: str
    who: str
    why: str
    release: str
    result: str
    serves: str | None
    by: str
    seconds: Mapping[str, float]
    failure: str | None

    @property
    def line(self) -> str:
        """One line for a person."""
        total = f"{sum(self.seconds.values()):.0f} s"
        parts = [self.at, self.result, self.release, total, f"by {self.who}" if self.who else ""]
        if self.why:
            parts.append(f"({self.why})")
        if self.failure:
            parts.append(f"- {self.failure}")
        return printable("  ".join(part for part in parts if part))


def parse(written: str) -> list[Deploy]:
    """Return the deploys, oldest first; a line torn by a crash, or one that is no object, is left out."""
    return [_deploy(raw) for line in written.split("\n") if (raw := document(line))]


def read(connection: HostConnection) -> list[Deploy]:
    """Return the deploys recorded on the host, oldest first; none if nothing was ever deployed."""
    script = 'test ! -e "$1" || exec cat -- "$1"'
    return parse(connection.run(["sh", "-c", script, "sh", str(ON_HOST.audit)], check=True).text)


def _deploy(raw: Mapping[str, Any]) -> Deploy:
    failure = raw.get("failure")
    seconds = raw.get("seconds")
    return Deploy(
        at=text(raw.get("at")),
        who=text(raw.get("who")),
        why=text(raw.get("why")),
        release=text(raw.get("release")),
        result=text(raw.get("result")),
        serves=text(raw.get("serves")) or None,
        by=text(raw.get("by")),
        seconds={
            str(key): float(value)
            for key, value in (seconds if isinstance(seconds, dict) else {}).items()
            if isinstance(value, int | float) and value == value and abs(value) < 1e12
        },
        failure=f"{text(failure.get('title'))}: {text(failure.get('cause'))}"
        if isinstance(failure, dict)
        else None,
    )
