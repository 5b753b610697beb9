"""Would this configuration serve on this host? Said before anything is touched."""

from kdops.check.report import Report
from kdops.check.run import offline, online

__all__ = ["Report", "offline", "online"]
