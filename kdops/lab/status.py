"""What the lab looks like now."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kdops.lab import machine, network
from kdops.lab.control import complete
from kdops.lab.names import Lab, LabHost

_ASK = "systemctl is-system-running; df --block-size=1 --output=used,size / | tail -n 1"


@dataclass(frozen=True)
class HostStatus:
    """One host. `system` is systemd's word for it, None if SSH does not answer; sizes in bytes, None
    likewise.
    """

    name: str
    address: str
    powered: bool
    link: bool
    system: str | None
    disk_used: int | None
    disk_size: int | None
    image_allocated: int


@dataclass(frozen=True)
class LabStatus:
    """The lab: `root` is None and `hosts` empty when it is down."""

    name: str
    folder: Path
    root: Path | None
    ssh_config: Path
    inventory: Path
    hosts: tuple[HostStatus, ...]


def status(lab: Lab) -> LabStatus:
    """Ask all hosts at once; one that does not answer costs 3 s and hides nothing."""
    parts = complete(lab)
    hosts = parts.hosts if parts else ()
    with ThreadPoolExecutor(max_workers=16) as pool:
        seen = tuple(pool.map(lambda host: _host(lab, host), hosts))
    return LabStatus(lab.name, lab.folder, parts.root if parts else None, lab.ssh_config, lab.inventory, seen)


def _host(lab: Lab, host: LabHost) -> HostStatus:
    powered = machine.is_on(lab, host)
    system: str | None = None
    used: int | None = None
    size: int | None = None
    if powered:
        code, answer = machine.ssh(lab, host, _ASK, timeout=3)
        words = answer.split()
        if code == 0 and len(words) == 3:
            system, used, size = words[0], int(words[1]), int(words[2])
    allocated = lab.image(host).stat().st_blocks * 512
    link = network.link_is_up(lab, host)
    return HostStatus(host.name, host.address, powered, link, system, used, size, allocated)
