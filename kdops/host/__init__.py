"""One SSH connection per host: run, upload, port forward, probe, journal follow."""

from kdops.host.connection import HostConnection, RunResult
from kdops.host.settings import ansible_ssh_args

__all__ = ["HostConnection", "RunResult", "ansible_ssh_args"]
