"""What this machine needs before a lab can be built on it."""

from __future__ import annotations

import os
import shutil
import sys

from kdops.errors import ExitCode, KdopsError
from kdops.lab.command import environment

_WITHOUT_LAB = "kdops config, kdops render, and kdops plan or deploy against a remote host"
_PACKAGE_OF = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "losetup": "mount",
    "mkfs.ext4": "e2fsprogs",
}


def missing_packages() -> tuple[str, ...]:
    """Return the Debian packages whose programs the lab calls and this machine lacks."""
    path = environment()["PATH"]
    return tuple(sorted({pkg for tool, pkg in _PACKAGE_OF.items() if shutil.which(tool, path=path) is None}))


def check() -> None:
    """Raise KdopsError (exit code 5) unless this is Linux, as root, with the lab's programs installed."""
    if not sys.platform.startswith("linux"):
        _refuse(
            f"this system is {sys.platform}",
            "run it on Debian or Ubuntu (a virtual machine will do), as root",
        )
    missing = missing_packages()
    install = f"apt-get install {' '.join(missing)}" if missing else ""
    if os.geteuid() != 0:
        also = f"; it would need these packages too: {install}" if missing else ""
        _refuse(
            f"it needs root: it makes network namespaces, mounts and cgroups, and boots systemd{also}",
            "run the same command as root (sudo keeps the cache folder with -E)",
        )
    if missing:
        _refuse(f"these Debian packages are missing: {' '.join(missing)}", f"as root: {install}")


def _refuse(cause: str, remedy: str) -> None:
    raise KdopsError(
        "the lab cannot run here",
        cause=cause,
        remedy=f"{remedy}. Without the lab, these work here: {_WITHOUT_LAB}",
        code=ExitCode.REFUSED,
    )
