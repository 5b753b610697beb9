"""Everything a client needs to reach the lab: keys, known_hosts, ssh_config, and an Ansible inventory."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from kdops import paths
from kdops.lab import pipe
from kdops.lab.command import run
from kdops.lab.names import Lab, LabHost
from kdops.lab.network import NAMESPACES


def client_key(lab: Lab) -> Path:
    """The private key that every host of the lab accepts for root."""
    return lab.folder / "client_key"


def host_key(lab: Lab, host: LabHost) -> Path:
    """The host's own private key, as its sshd gets it."""
    return lab.host_folder(host) / "host_key"


def make_key(path: Path) -> None:
    """Make an ed25519 key pair without a passphrase at `path` and `path`.pub."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", path, what="making an SSH key")


def write(lab: Lab, hosts: Sequence[LabHost]) -> None:
    """Write known_hosts, ssh_config and the inventory for these hosts; their keys exist."""
    known = [
        f"{host.name},{host.address} {' '.join(_public(host_key(lab, host)).split()[:2])}\n" for host in hosts
    ]
    (lab.folder / "known_hosts").write_text("".join(known))
    shutil.copy(pipe.__file__, lab.folder / "pipe.py")
    lab.ssh_config.write_text(ssh_config(lab, hosts))
    lab.inventory.parent.mkdir(exist_ok=True)
    lab.inventory.write_text(inventory(lab, hosts))
    variables = lab.inventory.parent / "group_vars" / "lab.yml"
    variables.parent.mkdir(exist_ok=True)
    shutil.copy(paths.data("inventories") / "group_vars" / "lab.yml", variables)


def _public(key: Path) -> str:
    return key.with_name(key.name + ".pub").read_text()


def ssh_config(lab: Lab, hosts: Sequence[LabHost]) -> str:
    """Return the text of the lab's ssh_config (ssh_config(5)); understood by OpenSSH and paramiko."""
    python = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
    enter = ["nsenter", f"--net={NAMESPACES / lab.switch}", python, "-I", "-S", str(lab.folder / "pipe.py")]
    proxy = shlex.join(enter).replace("%", "%%") + " %h %p"
    names = " ".join(host.name for host in hosts)
    lines = [f"Host {host.name}\n  HostName {host.address}\n" for host in hosts]
    common = [
        ("User", "root"),
        ("IdentityFile", _quoted(client_key(lab))),
        ("IdentitiesOnly", "yes"),
        ("UserKnownHostsFile", _quoted(lab.folder / "known_hosts")),
        ("StrictHostKeyChecking", "yes"),
        ("ProxyCommand", proxy),
    ]
    return "".join(lines) + f"Host {names}\n" + "".join(f"  {key} {value}\n" for key, value in common)


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("%", "%%") + '"'


def inventory(lab: Lab, hosts: Sequence[LabHost]) -> str:
    """Return an Ansible inventory of the group `lab`, reached through the lab's ssh_config."""
    common_args = shlex.join(["-F", str(lab.ssh_config)])
    entries = {host.name: {"ansible_ssh_common_args": common_args} for host in hosts}
    text: str = yaml.safe_dump({"lab": {"hosts": entries}}, sort_keys=False)
    return text
