"""Which journal lines are errors, and of what class of docs/failures.md. Pure."""

from __future__ import annotations

import re

from kdops.diagnose.failures import CLASSES, TABLE
from kdops.host.journal import Entry

_ERROR = 3
_LONGEST = 2000
_BUSY = ("Decode batch", "Prefill batch", "DDTREE metrics", ' HTTP/1.1" 200')
_ANY = re.compile("|".join(f"(?:{pattern})" for one in CLASSES for pattern in one.patterns))
_PYTHON = re.compile(r"Traceback \(most recent|\b[A-Z]\w*(?:Error|Exception)\b")


def error_class(entry: Entry) -> str:
    """Return the failure class that the line shows, "error" for a Python error or syslog's err, or ""."""
    text = entry.message[:_LONGEST]
    if any(word in text for word in _BUSY):
        return ""
    if _ANY.search(text):
        return next((one.id for one, pattern in TABLE if pattern.search(text)), "error")
    return "error" if entry.priority <= _ERROR or _PYTHON.search(text) else ""
