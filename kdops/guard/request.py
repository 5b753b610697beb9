"""What a client sends to open a transaction: one JSON document on stdin, checked before anything happens."""

from __future__ import annotations

import math
import re
from dataclasses import MISSING, dataclass, fields
from typing import Any

from kdops.errors import UsageError
from kdops.guard.model import ADOPTED

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,127}")


@dataclass(frozen=True)
class Request:
    """id: chosen by the client, once per deploy. lease, ready_timeout: in seconds. adopt: unit to replace.

    force: deploy even if this release already serves without drift. trial: never commit it (an A/B leg).
    """

    id: str
    release: str
    unit: str
    service: str
    who: str = "unknown"
    why: str = ""
    lease: float = 60.0
    ready_timeout: float = 1800.0
    adopt: str = ""
    force: bool = False
    trial: bool = False


def parse(raw: Any) -> Request:
    """Raises UsageError naming the field that is missing, unknown, of the wrong type or out of range."""
    if not isinstance(raw, dict):
        raise _wrong("it is no JSON object")
    known = {field.name: field for field in fields(Request)}
    if unknown := sorted(set(raw) - set(known)):
        raise _wrong(f"unknown field {unknown[0]!r}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name not in raw and field.default is MISSING:
            raise _wrong(f"field {name!r} is missing")
        values[name] = _typed(name, raw.get(name, field.default), str(field.type))
    for name in ("id", "unit", "service"):
        _check_name(name, values[name])
    _check_name("release", values["release"].removeprefix(ADOPTED))
    if values["adopt"]:
        _check_name("adopt", values["adopt"])
    return Request(**values)


def _typed(name: str, value: Any, kind: str) -> Any:
    if kind == "float":
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or value < 0
        ):
            raise _wrong(f"field {name!r} must be a number of seconds, not {value!r}")
        return float(value)
    if not isinstance(value, bool if kind == "bool" else str):
        raise _wrong(f"field {name!r} must be a {kind}, not {value!r}")
    return value


def _check_name(field: str, value: str) -> None:
    if not _NAME.fullmatch(value):
        raise _wrong(f"field {field!r} is no plain name: {value[:80]!r}")


def _wrong(cause: str) -> UsageError:
    return UsageError(
        "the guard was called wrongly", cause=cause, remedy="use the playbooks that came with this kdops"
    )
