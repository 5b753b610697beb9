"""Why a host's service or its last deploy failed, as a class: asked of the journal only where one failed."""

from __future__ import annotations

from typing import NamedTuple

from kdops.deploy.why import from_journal
from kdops.diagnose.failures import Failure, classify
from kdops.errors import KdopsError
from kdops.host import HostConnection
from kdops.host.status import HostStatus


class Seen(NamedTuple):
    """A host's status and the class of its failure, None if nothing failed or the class is unknown."""

    status: HostStatus
    failure: Failure | None


def failure_of(found: HostStatus, connection: HostConnection) -> Failure | None:
    """Return the failure of the service that is down now, else of the last deploy."""
    unit, last = found.unit, found.outcome
    if unit.active == "failed" or unit.sub == "auto-restart":
        try:
            return from_journal(connection, unit.name)
        except KdopsError:
            return None
    return classify(last.evidence) if last and last.failure else None
