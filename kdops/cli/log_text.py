"""How `kdops logs` shows and chooses entries. Pure."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import re2

from kdops.errors import UsageError
from kdops.text import printable

if TYPE_CHECKING:
    from kdops.host.journal import Entry

# "[2026-11-29 17:20:11.123 DP0 TP3] ": SGLang 0.5.23, srt/utils/common.py, configure_logger.
_STAMP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?(?: ([A-Z0-9_ ]{1,80}))?\] ?", re.ASCII)


def without_stamp(message: str) -> str:
    """Return the message without the time SGLang put before it; the rank beside it stays: `[TP3] ...`."""
    found = _STAMP.match(message)
    if not found:
        return message
    rank = f"[{found[1]}] " if found[1] else ""
    return rank + message[found.end() :]


def shown(entry: Entry, *, raw: bool = False, as_json: bool = False) -> str:
    """Return the entry for stdout: its time, then its message, on one line each and fit for a terminal.

    SGLang's own time is left out where the journal has one, unless `raw`. JSON holds the message unchanged.
    """
    if as_json:
        return json.dumps(dataclasses.asdict(entry))
    when = datetime.fromtimestamp(entry.time).strftime("%Y-%m-%d %H:%M:%S")
    message = entry.message if raw or not entry.time else without_stamp(entry.message)
    first, *more = [printable(part) for part in message.split("\n")]
    return "\n".join([f"{when} {first}", *(f"{'':19} {part}" for part in more)])


@dataclass(frozen=True)
class Pattern:
    """A regular expression that takes time linear in the line, whatever it is (RE2)."""

    compiled: re2._Regexp[str]

    def search(self, message: str) -> bool:
        """True if the message has it, with SGLang's time before it or without."""
        whole = message.encode(errors="replace").decode()  # a lone surrogate is no text for RE2
        return any(self.compiled.search(text) is not None for text in {whole, without_stamp(whole)})


def pattern(expression: str) -> Pattern:
    """Compile `--grep`. Raises UsageError for what is no RE2 expression."""
    options = re2.Options()
    options.log_errors = False
    try:
        return Pattern(re2.compile(expression, options))
    except (re2.error, UnicodeEncodeError) as error:
        told = error.args[0] if isinstance(error, re2.error) else "it is not UTF-8"
        cause = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        raise UsageError(
            f"--grep {expression[:80]!r} is no regular expression",
            cause=cause[:200],
            remedy="escape characters such as ( [ * + with a backslash; look-around and back references, "
            "which can take for ever on one line, are not there (RE2 syntax)",
        ) from None
