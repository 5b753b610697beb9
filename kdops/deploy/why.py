"""Why a start failed: its class, read from the journal, and the words of systemd and the launcher."""

from __future__ import annotations

from kdops.diagnose.failures import Failure, classify
from kdops.errors import KdopsError
from kdops.guard.explain import failed_start
from kdops.guard.systemd import Unit
from kdops.host import HostConnection
from kdops.host.follow import Query, read
from kdops.host.service import Ended

_LINES = 3000
_EVIDENCE = 15


def from_journal(connection: HostConnection, unit: str) -> Failure | None:
    """Return the failure that the newest failed start of `unit` shows; None when nothing known is in it.

    Raises KdopsError, UnreachableError when the journal cannot be read.
    """
    return classify(entry.message for entry in read(connection, Query(unit, lines=_LINES)))


def named(error: KdopsError, failure: Failure | None) -> KdopsError:
    """Return `error` with the failure's class in front, its lines as evidence and where it is explained."""
    if failure is None or not failure.fatal:
        return error
    known = failure.failure_class
    return KdopsError(
        error.title,
        cause=f"{known.title}: {known.cause} ({error.cause})",
        remedy=f"{known.remedy}; see {known.link}. {error.remedy}",
        code=error.code,
        evidence=tuple(dict.fromkeys((*failure.lines, *error.evidence))),
    )


def not_started(host: str, ended: Ended) -> KdopsError:
    """Return the error for a service that was started by hand and is not up."""
    unit = ended.unit
    as_guard = Unit(
        active=unit.active,
        result=unit.result,
        exit_code=str(unit.exit_code),
        exit_status=str(unit.exit_status),
        status_text=unit.status_text,
    )
    last = ended.lines[-_EVIDENCE:]
    failure = failed_start(unit.name, as_guard, last)
    again = "; systemd tries again by itself" if unit.sub == "auto-restart" else ""
    error = KdopsError(
        f"{host}: the service did not start",
        cause=failure.cause + again,
        remedy=failure.remedy,
        evidence=last,
    )
    return named(error, classify(ended.lines))
