"""One host's state again and again, through one channel: the probe's script stays there and writes lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kdops.host.connection import HostConnection
from kdops.host.probe import command, no_report, script
from kdops.loose import document

MOST_BYTES = 1 << 24


def reports(
    connection: HostConnection, interval: float, metrics: tuple[str, ...]
) -> Iterator[Mapping[str, Any]]:
    """Yield the probe's document (`status.parse` reads it) every `interval` seconds.

    While kdops measures there, nothing is asked and the document is {"paused": true, "time": seconds}.
    metrics: prefixes of the names to carry over. Raises UnreachableError when the link breaks, KdopsError
    when the host has no python3 or its answer is no report.
    """
    host = connection.host
    rest = b""
    for piece in connection.stream(command(host, f"{interval:g}", ",".join(metrics)), stdin=script()):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield _document(host.name, line)
        if len(rest) > MOST_BYTES:
            raise no_report(host.name, _said(rest))
    raise no_report(host.name, _said(rest))


def _document(name: str, line: bytes) -> Mapping[str, Any]:
    told = document(line)
    if not told:
        raise no_report(name, _said(line))
    return told


def _said(line: bytes) -> str:
    return (
        f"the sampler there said {line[:120].decode(errors='replace')!r}"
        if line
        else "the sampler there ended"
    )
