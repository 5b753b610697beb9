"""Ask one host, or many at once, how it is: one round trip each, a deadline each."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kdops.errors import KdopsError, UnreachableError
from kdops.guard.layout import ON_HOST
from kdops.host import on_host
from kdops.host.connection import HostConnection
from kdops.host.status import HostStatus, parse

if TYPE_CHECKING:
    from kdops.fleet import Host

_DEFAULT_PORT = 30000
T = TypeVar("T")


def probe(connection: HostConnection, timeout: float = 10.0) -> HostStatus:
    """Return the host's status.

    Raises UnreachableError, or KdopsError when the host has no python3 or its answer is no report.
    """
    host = connection.host
    result = connection.run(command(host), stdin=script(), timeout=timeout)
    try:
        report = json.loads(result.stdout)
    except ValueError:
        report = None
    if not isinstance(report, dict):
        said = tuple(result.stderr.decode(errors="replace").splitlines()[-5:])
        cause = said[-1] if said else f"python3 on the host ended with status {result.code}"
        raise no_report(host.name, cause, said or tuple(result.text.splitlines()[:5]))
    return parse(host.name, report)


def no_report(host: str, cause: str, evidence: tuple[str, ...] = ()) -> KdopsError:
    """Return the error for a host whose answer is no report."""
    return KdopsError(
        f"{host}: the host's state cannot be read",
        cause=cause,
        remedy="check that python3 (3.9 or newer) runs there; a login script must print nothing",
        evidence=evidence,
    )


def script() -> bytes:
    """Return the program that `command` runs, for its stdin."""
    return Path(on_host.__file__).read_bytes()


def command(host: Host, *more: str) -> list[str]:
    """Return the command for the host. The inventory's port is for a host whose release names none."""
    places = {
        "current": ON_HOST.current,
        "transaction": ON_HOST.transaction,
        "lease": ON_HOST.lease,
        "api_key": ON_HOST.api_key(host.service),
    }
    port = str(host.variables.get("engine_port", _DEFAULT_PORT))
    port = port if port.isdecimal() else str(_DEFAULT_PORT)
    return ["python3", "-", json.dumps(places, default=str), host.unit, port, *more]


def each(hosts: Sequence[Host], ask: Callable[[Host], T], deadline: float) -> list[T | KdopsError]:
    """Return `ask(host)` or its KdopsError for every host, in order, all at once.

    A host that has not answered after `deadline` seconds is an UnreachableError; its thread is left behind.
    """
    answers: queue.SimpleQueue[tuple[int, T | BaseException]] = queue.SimpleQueue()

    def work(index: int, host: Host) -> None:
        try:
            answers.put((index, ask(host)))
        except BaseException as error:  # handed to the caller below
            answers.put((index, error))

    for index, host in enumerate(hosts):
        threading.Thread(target=work, args=(index, host), daemon=True).start()
    found: dict[int, T | KdopsError] = {}
    stop = time.monotonic() + deadline
    while len(found) < len(hosts) and (left := stop - time.monotonic()) > 0:
        try:
            index, answer = answers.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(answer, BaseException) and not isinstance(answer, KdopsError):
            raise answer
        found[index] = answer
    return [found[index] if index in found else _silent(host, deadline) for index, host in enumerate(hosts)]


def _silent(host: Host, deadline: float) -> KdopsError:
    return UnreachableError(
        f"{host.name}: timed out",
        cause=f"no answer within {deadline:g} s",
        remedy="the host is up but slow, or its network drops packets: try `ssh` by hand",
    )
