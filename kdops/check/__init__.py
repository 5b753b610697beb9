"""Would this configuration serve on this host? Said before anything is touched."""

from kdops.check.report import Report
from kdops.check.run import before_deploy, offline, online

__all__ = ["Report", "before_deploy", "offline", "online"]
