"""Quoting for systemd: a value arrives at the process unchanged, or is refused."""

from __future__ import annotations

import re

from kdops.errors import UsageError

_WORD = re.compile(r"[A-Za-z0-9_./:@%+=,-]*")


def specifiers(text: str) -> str:
    """Return `text` for a unit setting: `%` doubled (systemd.unit(5), "Specifiers").

    Raises UsageError for anything that a unit line would split, quote, expand or end; settings that may hold
    such text go into launch.yaml or engine.env instead.
    """
    if not _WORD.fullmatch(text.replace(" ", "")):
        raise UsageError(
            f"{text[:60]!r} cannot stand in a systemd unit",
            cause="it holds a character that systemd would read as quoting, an expansion or a line end",
            remedy="use letters, digits and . _ - : / @ only",
        )
    return text.replace("%", "%%")


def env_quoted(text: str) -> str:
    r"""Return `text` in double quotes for an EnvironmentFile (systemd.exec(5)): `\`, `"`, `` ` `` and `$`
    escaped.

    Line ends inside the quotes are kept by systemd. Specifiers and variables are not expanded in such files.
    """
    return '"' + re.sub(r'([\\"`$])', r"\\\1", text) + '"'
