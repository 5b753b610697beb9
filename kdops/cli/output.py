"""stdout carries data only; stderr carries progress and words."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from typing import Any

from kdops.errors import KdopsError
from kdops.text import json_printable, printable


def emit(text: str) -> None:
    """Write lines to stdout, at once: a follower's reader waits for each. What a host or a file put into them
    cannot act on the terminal.
    """
    print(_fit(text), flush=True)


def emit_folded(line: str, hang: int = 4) -> None:
    """Write a line of data that may be long: a terminal gets it folded between words, a pipe as it is.

    hang: columns before what continues it.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    text = printable(line)
    emit(
        "\n".join(textwrap.wrap(text, width, subsequent_indent=" " * hang)) if 0 < width < len(text) else text
    )


def emit_json(value: Any) -> None:
    """Write one JSON document to stdout (no NaN: a consumer must be able to parse it). What could act on a
    terminal is escaped."""
    told = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False)
    print("\n".join(map(json_printable, told.split("\n"))))


def say(text: str) -> None:
    """Write words for a person to stderr; what a host or a file put into them cannot act on the terminal."""
    print(_fit(text), file=sys.stderr, flush=True)


def _fit(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def show_error(error: KdopsError) -> None:
    """Print title, cause, evidence and remedy to stderr."""
    say(f"error: {error.title}")
    say(f"  cause:  {error.cause}")
    for line in error.evidence:
        say(f"  | {line}")
    say(f"  remedy: {error.remedy}")
