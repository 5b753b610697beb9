"""The class of a failure, read from the journal of the start that failed."""

from __future__ import annotations

from kdops.diagnose.failures import Failure, classify
from kdops.errors import KdopsError
from kdops.host import HostConnection
from kdops.host.follow import Query, read

_LINES = 3000


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
