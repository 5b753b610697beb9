"""One SSH connection per host: run, upload, port forward, probe, journal follow."""

from kdops.host.connection import HostConnection, RunResult
from kdops.host.probe import each, probe
from kdops.host.settings import ansible_ssh_args
from kdops.host.status import HostStatus

__all__ = ["HostConnection", "HostStatus", "RunResult", "ansible_ssh_args", "each", "probe"]
