"""The host's record of deploys: one JSON object a line, written by its guard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kdops.guard.layout import ON_HOST
from kdops.host.connection import HostConnection
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


def parse(text: str) -> list[Deploy]:
    """Return the deploys, oldest first; a line torn by a crash, or one that is no object, is left out."""
    found = []
    for line in text.split("\n"):
        try:
            raw = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(raw, dict):
            found.append(_deploy(raw))
    return found


def read(connection: HostConnection) -> list[Deploy]:
    """Return the deploys recorded on the host, oldest first; none if nothing was ever deployed."""
    script = 'test ! -e "$1" || exec cat -- "$1"'
    return parse(connection.run(["sh", "-c", script, "sh", str(ON_HOST.audit)], check=True).text)


def _deploy(raw: Mapping[str, Any]) -> Deploy:
    failure = raw.get("failure")
    seconds = raw.get("seconds")
    return Deploy(
        at=_text(raw.get("at")),
        who=_text(raw.get("who")),
        why=_text(raw.get("why")),
        release=_text(raw.get("release")),
        result=_text(raw.get("result")),
        serves=_text(raw.get("serves")) or None,
        by=_text(raw.get("by")),
        seconds={
            str(key): float(value)
            for key, value in (seconds if isinstance(seconds, dict) else {}).items()
            if isinstance(value, int | float) and value == value and abs(value) < 1e12
        },
        failure=f"{_text(failure.get('title'))}: {_text(failure.get('cause'))}"
        if isinstance(failure, dict)
        else None,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)
