"""One host: its disk, its power switch, and whether it is on."""

from __future__ import annotations

import time
from pathlib import Path

from kdops.errors import KdopsError
from kdops.lab import access, cgroups, network
from kdops.lab.command import FILES, Command, attempt, run
from kdops.lab.names import Lab, LabHost

DISK = "4G"
_BOOT_SECONDS = 60.0


def create(lab: Lab, host: LabHost, disk: str = DISK) -> None:
    """Make the host's keys, disk (sparse, `disk` as truncate(1) reads it) and network; it stays off."""
    folder = lab.host_folder(host)
    (folder / "disk").mkdir(parents=True)
    access.make_key(access.host_key(lab, host))
    what = f"making the disk of {host.name}"
    run("truncate", "--size", disk, lab.image(host), what=what)
    # ext4, not tmpfs: tmpfs pages would count against a unit's MemoryMax
    options = ["-q", "-m0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"]
    run("mkfs.ext4", *options, lab.image(host), what=what)
    network.plug_in(lab, host)


def boot(lab: Lab, host: LabHost, root: Path) -> None:
    """Switch the host on; returns at once (see `wait`)."""
    name = lab.machine(host)
    groups = cgroups.create(name)
    keeper, machine = (":".join(map(str, part)) for part in (groups.keeper, groups.machine))
    folder = lab.host_folder(host)
    around: Command = ["bash", FILES / "power.sh", keeper]
    inside: Command = [machine, lab.image(host), root, folder / "disk", access.host_key(lab, host)]
    identity: Command = [access.client_key(lab).with_suffix(".pub"), name, host.name, name]
    console: Command = ["sh", "-c", 'exec "$@" >>"$0" 2>&1', folder / "console.log"]
    run("setsid", "--fork", *console, *around, *inside, *identity, what=f"switching {host.name} on")


def is_on(lab: Lab, host: LabHost) -> bool:
    """Whether any process of the host exists."""
    return bool(cgroups.processes(lab.machine(host)))


def kill(lab: Lab, host: LabHost) -> None:
    """Pull the plug: the link goes silent, every process dies at once, disk and journal stay as they are.

    Returns when the kernel has let go of the disk. What the host wrote without fsync is kept too: the kernel
    that caches it is this machine's.
    """
    if (network.NAMESPACES / lab.switch).exists() and network.link_is_up(lab, host):
        network.set_link(lab, host, up=False)
    end(lab, host.name)


def end(lab: Lab, host_name: str) -> None:
    """Kill the host's processes and wait until its cgroups and its loop device are gone."""
    machine = lab.prefix + host_name
    cgroups.destroy(machine)
    image = lab.folder / "hosts" / host_name / "disk.img"
    deadline = time.monotonic() + 30
    while image.exists() and attempt("losetup", "--associated", image).stdout.strip():
        if time.monotonic() > deadline:
            raise KdopsError(
                f"the disk of {host_name} is still in use",
                cause=f"a loop device holds {image} 30 s after the host ended",
                remedy="end what `fuser --mount` names for it, then run the command again",
            )
        time.sleep(0.01)


def ssh(lab: Lab, host: LabHost, *command: str, timeout: float = 10.0) -> tuple[int, str]:
    """Run a command on the host; returns its exit code (255: no answer within `timeout` s) and stdout."""
    options: Command = (
        "-oBatchMode=yes",
        "-oLogLevel=ERROR",
        f"-oServerAliveInterval={max(1, int(timeout))}",
    )
    full: Command = [
        "timeout",
        "--kill-after=1",
        str(timeout),
        "ssh",
        "-F",
        lab.ssh_config,
        *options,
        host.name,
        *command,
    ]
    result = attempt(*full)
    return (255 if result.returncode in (124, 137) else result.returncode), result.stdout


def wait(lab: Lab, host: LabHost) -> str:
    """Wait until the host has booted and answers over SSH; returns systemd's word for it ("running",
    "degraded").

    Raises KdopsError with the end of the console if the host dies or takes longer than 60 s.
    """
    deadline = time.monotonic() + _BOOT_SECONDS
    while time.monotonic() < deadline:
        code, answer = ssh(lab, host, "systemctl is-system-running --wait", timeout=5)
        if code != 255:
            return answer.strip()
        if not is_on(lab, host):
            break
        time.sleep(0.05)
    console = lab.host_folder(host) / "console.log"
    lines = console.read_text(errors="replace").splitlines() if console.exists() else []
    raise KdopsError(
        f"the lab host {host.name} did not come up",
        cause="it ended while booting"
        if not is_on(lab, host)
        else f"no SSH answer within {_BOOT_SECONDS:.0f} s",
        remedy=f"its console is in {console}; `kdops lab down` removes the lab",
        evidence=tuple(lines[-12:]),
    )
