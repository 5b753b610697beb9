"""One SSH connection per host: run, upload, port forward, probe, journal follow."""

from kdops.host.connection import HostConnection, RunResult
from kdops.host.probe import each, probe
from kdops.host.status import HostStatus

__all__ = ["HostConnection", "HostStatus", "RunResult", "each", "probe"]
