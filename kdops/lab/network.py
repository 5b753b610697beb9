"""The lab's own network: a bridge in one namespace, and a namespace per host.

The machine's own network is not touched.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from kdops.lab.command import attempt, run
from kdops.lab.names import SWITCH_ADDRESS, Lab, LabHost

NAMESPACES = Path("/run/netns")


def create_switch(lab: Lab) -> None:
    """Make the namespace with the bridge; the lab's clients live there, as 10.77.0.1."""
    what = "making the lab's switch"
    run("ip", "netns", "add", lab.switch, what=what)
    for step in (
        "link set lo up",
        "link add br0 type bridge",
        f"addr add {SWITCH_ADDRESS}/24 dev br0",
        "link set br0 up",
    ):
        run("ip", "-n", lab.switch, *step.split(), what=what)


def plug_in(lab: Lab, host: LabHost) -> None:
    """Make the host's namespace and its cable to the switch."""
    what, namespace = f"making the network of {host.name}", lab.machine(host)
    run("ip", "netns", "add", namespace, what=what)
    cable = f"link add {host.name} type veth peer name eth0 netns {namespace}"
    run("ip", "-n", lab.switch, *cable.split(), what=what)
    run("ip", "-n", lab.switch, "link", "set", host.name, "master", "br0", "up", what=what)
    for step in ("link set lo up", f"addr add {host.address}/24 dev eth0", "link set eth0 up"):
        run("ip", "-n", namespace, *step.split(), what=what)


def set_link(lab: Lab, host: LabHost, *, up: bool) -> None:
    """Connect or cut the host's cable at the switch. Peers see silence, not a reset."""
    run(
        "ip", "-n", lab.switch, "link", "set", host.name, "up" if up else "down",
        what=f"{'healing' if up else 'cutting'} the link of {host.name}",
    )  # fmt: skip


def link_is_up(lab: Lab, host: LabHost) -> bool:
    """Whether the cable is connected at the switch (a host that is off may have its cable in)."""
    shown = attempt("ip", "-n", lab.switch, "-oneline", "link", "show", host.name)
    return shown.returncode == 0 and ",UP" in shown.stdout.partition(">")[0]


def destroy(lab: Lab) -> None:
    """Remove every namespace of this lab, after ending the processes (of ssh connections) that are still in
    one.
    """
    namespaces = sorted(NAMESPACES.glob(f"{lab.prefix}*"))
    inodes = {(stat.st_dev, stat.st_ino) for stat in (path.stat() for path in namespaces)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mine = (process / "ns/net").stat()
            if (mine.st_dev, mine.st_ino) in inodes:
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue  # it ended meanwhile
    for path in namespaces:
        run("ip", "netns", "delete", path.name, what=f"removing the network namespace {path.name}")
    if NAMESPACES.is_dir() and not any(NAMESPACES.iterdir()):
        # iproute2 mounts this folder onto itself for the first namespace on a machine; the last one takes it
        # along
        attempt("umount", NAMESPACES)
