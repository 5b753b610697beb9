"""Ask the guard on a host directly: for plans, heartbeats, and when a playbook cannot tell how it ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from kdops.errors import ExitCode, KdopsError
from kdops.guard.layout import ON_HOST
from kdops.loose import items, mapping, text

_PYZ = str(ON_HOST.guard)


class DamagedGuardError(KdopsError):
    """The guard on the host is there and does not answer as one; a deploy installs it anew."""


class Result(Protocol):
    """How a remote command ended."""

    @property
    def code(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def stderr(self) -> bytes: ...


class Runner(Protocol):
    """The part of `kdops.host.HostConnection` that is needed here."""

    def run(
        self, argv: list[str], *, stdin: bytes = b"", timeout: float = 30.0, check: bool = False
    ) -> Result: ...


def call(runner: Runner, *arguments: str, timeout: float = 30.0) -> dict[str, Any] | None:
    """Return the guard's document, None when this host has no guard yet.

    Raises KdopsError as the guard reports it, or when its answer is no document.
    """
    result = runner.run(["/usr/bin/python3", "-IB", _PYZ, *arguments], timeout=timeout)
    if result.code == 2 and "can't open file" in result.stderr.decode(errors="replace"):
        return None
    try:
        return document(json.loads(result.text))
    except ValueError as error:
        said = result.stderr.decode(errors="replace").strip().splitlines()
        raise DamagedGuardError(
            "the guard on the host did not answer as expected",
            cause=said[-1] if said else result.text[:200] or f"no word, exit status {result.code}",
            remedy=f"`kdops deploy` installs it anew; to see more, run on the host: python3 {_PYZ} status",
        ) from error


def document(answer: Any) -> dict[str, Any]:
    """Return a guard's answer; raises the KdopsError it carries, ValueError when it is none of a guard."""
    if not isinstance(answer, dict) or "ok" not in answer:
        raise ValueError("no answer of a guard")
    if not answer["ok"]:
        raise error_of(mapping(answer.get("error")))
    return _Answer(answer)


class _Answer(dict[str, Any]):
    """A guard's document. One of another kdops may lack what is asked for."""

    def __missing__(self, key: str) -> Any:
        raise DamagedGuardError(
            "the guard on the host is of another kdops",
            cause=f"its answer does not tell {key!r}",
            remedy="`kdops deploy` installs this one's",
        )


def error_of(words: Mapping[str, Any]) -> KdopsError:
    """Return the KdopsError in a guard's error or failure document; another version may tell less."""
    code = words.get("code")
    return KdopsError(
        text(words.get("title")) or "the guard on the host reports a failure",
        cause=text(words.get("cause")) or "it does not say why",
        remedy=text(words.get("remedy")) or f"to see more, run on the host: python3 {_PYZ} status",
        code=next((known for known in ExitCode if known and known == code), ExitCode.FAILED),
        evidence=tuple(map(text, items(words.get("evidence")))),
    )
