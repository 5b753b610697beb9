"""What a document from elsewhere holds, as the type that is due: odd values become nothing, none raises."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """Return a list of a list's or tuple's items, else an empty one."""
    return list(value) if isinstance(value, list | tuple) else []


def text(value: Any) -> str:
    """Return text; of null none, of anything else its form in Python."""
    return value if isinstance(value, str) else "" if value is None else str(value)


def number(value: Any) -> float | None:
    """Return a finite number, also one that is written as text."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def digits(value: str | None) -> int | None:
    """Return the whole number that is written in plain digits, at most 18 of them."""
    return int(value) if value and _DIGITS.fullmatch(value) else None


def positive(value: Any) -> int | None:
    """Return a whole number above zero that is one (no text, no bool)."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def document(written: str | bytes | None) -> dict[str, Any]:
    """Return the JSON object that is written there, else an empty one."""
    try:
        told = json.loads(written or "")
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
