"""Ways to deploy on a real systemd host, with a stand-in for the engine: connections, tools, beginnings."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from deploying import UNIT, Deployer, standin_tree, write_inventory

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab

SENTINEL = "sk-sentinel-6f1c"
KEY_PLACE = "/etc/kdops/credentials/lab0.api_key"


FAKE_TORCH = """
class Tensor:
    def sum(self):
        return self

    def item(self):
        return 0.0


def ones(count):
    return Tensor()


__version__ = "fake"
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return standin_tree(tmp_path_factory.mktemp("ways") / "tree")


@pytest.fixture
def kdops(lab: LabHandle, tree: Path, tmp_path: Path) -> Iterator[Deployer]:
    """kdops with the stand-in engine and a clean lab0."""
    lab.clean("lab0")
    yield Deployer(lab, tree, write_inventory(tmp_path / "inventory", f"-F {lab.ssh_config}"))
    lab.clean("lab0")


def reached_by(kdops: Deployer, folder: Path, ssh_config: str) -> Deployer:
    """The same host through another ssh configuration."""
    config = folder / "ssh_config"
    config.write_text(ssh_config)
    return Deployer(kdops.lab, kdops.tree, write_inventory(folder / "other", f"-F {config}"))


def test_plain_ansible_deploys_and_changes_nothing_the_second_time(kdops: Deployer) -> None:
    done = kdops.playbook("deploy.yml")
    assert done.returncode == 0, done.stdout
    assert kdops.serves().startswith("ddtree-")
    invocation = kdops.property("InvocationID")
    done = kdops.playbook("deploy.yml")
    assert done.returncode == 0, done.stdout
    assert "changed=0" in done.stdout
    assert kdops.property("InvocationID") == invocation
    code, said = kdops.deploy()
    assert code == 0, said
    assert kdops.property("InvocationID") == invocation


@pytest.mark.parametrize("known", ["unknown", "changed"])
def test_host_keys_that_are_not_trusted_are_refused_by_both(
    kdops: Deployer, tmp_path: Path, known: str
) -> None:
    hosts = tmp_path / "known_hosts"
    hosts.touch()
    if known == "changed":
        key = tmp_path / "key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        kind, public = key.with_suffix(".pub").read_text().split()[:2]
        names = [
            line.split()[0] for line in (kdops.lab.ssh_config.parent / "known_hosts").read_text().splitlines()
        ]
        hosts.write_text("".join(f"{name} {kind} {public}\n" for name in names))
    config = f"Host *\n  UserKnownHostsFile {hosts}\nInclude {kdops.lab.ssh_config}\n"
    stranger = reached_by(kdops, tmp_path, config)
    code, said = stranger.deploy()
    assert code == 3
    assert f"host key {known}" in said
    done = stranger.playbook("deploy.yml")
    assert done.returncode == 4
    assert "Host key verification failed" in done.stdout
    assert kdops.lab.ssh("lab0", "ls /opt/kdops/guard", check=False) == ""


def test_included_configuration_and_a_jump_host(kdops: Deployer, tmp_path: Path) -> None:
    address = next(
        line.split()[1]
        for host in kdops.lab.ssh_config.read_text().split("Host ")
        if host.startswith("lab0\n")
        for line in host.splitlines()
        if "HostName" in line
    )
    part = tmp_path / "part"
    own = kdops.lab.ssh_config.read_text()
    part.write_text(own)
    lines = f"Host target\n  HostName {address}\n  ProxyJump lab1\n  User root\n"
    keys = [line for line in own.splitlines() if "IdentityFile" in line or "KnownHosts" in line]
    config = f"{lines}{chr(10).join(keys)}\nMatch all\nInclude {part}\n"
    through = reached_by(kdops, tmp_path, config)
    inventory = yaml.safe_load(through.inventory.read_text())
    inventory["lab"]["hosts"]["lab0"] = {"ansible_host": "target"}
    through.inventory.write_text(yaml.safe_dump(inventory))
    code, said = through.deploy()
    assert code == 0, said
    assert kdops.serves().startswith("ddtree-")


def test_environment_is_built_from_its_lock_and_a_wheel_folder(kdops: Deployer, tmp_path: Path) -> None:
    tree = standin_tree(tmp_path / "tree")
    (tree / "engine/locks/cpu.txt").write_text("pyyaml==6.0.4\n")
    wheels = tmp_path / "wheels"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    version = ["--python-version", "3.11"]
    subprocess.run([*command, *version, "-d", wheels, "pyyaml==6.0.4"], check=True)
    ssh_args = f"-F {kdops.lab.ssh_config}"
    inventory = write_inventory(tmp_path / "wheelhouse", ssh_args, kdops_wheel_dir=str(wheels))
    small = Deployer(kdops.lab, tree, inventory)
    code, said = small.deploy()
    assert code == 0, said
    assert "Python environment" in said or "[environment]" in said
    pid = small.property("MainPID")
    python = kdops.lab.ssh("lab0", f"tr '\\0' '\\n' </proc/{pid}/cmdline | head -n 1")
    built = python.split("/")[4]
    assert (
        kdops.lab.ssh("lab0", f"ls /opt/kdops/venvs/{built}/lib/python3.11/site-packages | grep -c yaml")
        != "0"
    )
    # The check of the next deploy starts torch in the service's sandbox, and this small environment has none.
    site = f"/opt/kdops/venvs/{built}/lib/python3.11/site-packages"
    kdops.lab.ssh("lab0", f"printf %s {shlex.quote(FAKE_TORCH)} >{site}/torch.py")
    shutil.rmtree(wheels)
    code, said = small.deploy("--profile", "linear")
    assert code == 0, said  # the environment is shared: nothing is built again
    kdops.lab.ssh("lab0", f"rm -rf /opt/kdops/venvs/{built}")


def test_adopted_service_is_replaced_and_can_be_rolled_back_to(kdops: Deployer, tmp_path: Path) -> None:
    unit = (
        "[Service]\nUser=root\nEnvironment=SGLANG_USE_CPU_ENGINE=1\n"
        "ExecStart=/usr/bin/python3 /opt/sglang/launch_server.py 30000 --bind 127.0.0.1\nNice=3\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )
    # In SGLang's place: a plain HTTP server, started under SGLang's name.
    server = "import runpy; runpy.run_module('http.server', run_name='__main__')"
    kdops.lab.ssh("lab0", f'mkdir -p /opt/sglang; echo "{server}" >/opt/sglang/launch_server.py')
    kdops.lab.ssh("lab0", f"cat >/etc/systemd/system/hand.service <<'E'\n{unit}E")
    kdops.lab.ssh("lab0", "systemctl daemon-reload; systemctl enable -q --now hand.service")
    try:
        code, written, said = kdops.run("adopt", "lab0", "hand.service")
        assert code == 0, said
        assert "Nice=3" in written
        assert yaml.safe_load(written)["engine_adopted_unit"] == "hand.service"
        ssh_args = f"-F {kdops.lab.ssh_config}"
        own = write_inventory(tmp_path / "adopted", ssh_args, engine_adopted_unit="hand.service")
        adopting = Deployer(kdops.lab, kdops.tree, own)
        code, said = adopting.deploy(mode="die")
        assert code == 6, said
        assert "rolled back: release unit:hand.service serves" in said
        assert (
            kdops.lab.ssh("lab0", "systemctl is-active hand; systemctl is-enabled hand") == "active\nenabled"
        )
        code, said = adopting.deploy()
        assert code == 0, said
        assert kdops.lab.ssh("lab0", "systemctl is-active hand; true", check=False) == "inactive"
        assert kdops.serves().startswith("ddtree-")
        code, _, said = adopting.run("rollback", "lab0")
        assert code == 0, said
        assert (
            kdops.lab.ssh("lab0", "systemctl is-active hand; systemctl is-enabled hand") == "active\nenabled"
        )
        assert kdops.property("ActiveState") == "inactive"
    finally:
        kdops.lab.ssh(
            "lab0", "systemctl disable -q --now hand; rm -r /etc/systemd/system/hand.service /opt/sglang"
        )


def test_preflight_refuses_before_anything_is_uploaded(kdops: Deployer) -> None:
    code, said = kdops.deploy("--set", "engine_model=/srv/no-such-model")
    assert code == 5
    assert "/srv/no-such-model does not exist" in said
    assert "nothing was changed" in said
    kdops.lab.ssh("lab0", "systemd-run -q --unit=kdops-squatter python3 -m http.server 30000 -b 127.0.0.1")
    kdops.lab.ssh("lab0", "until ss -Hltn 'sport = :30000' | grep -q .; do sleep 0.1; done")
    code, said = kdops.deploy()
    assert code == 5
    assert "port 30000 is taken" in said
    assert "unit kdops-squatter.service" in said
    kdops.lab.ssh("lab0", "systemctl stop kdops-squatter")


def test_check_mode_shows_the_difference_and_changes_nothing(kdops: Deployer) -> None:
    before = kdops.lab.ssh(
        "lab0", "find /opt/kdops /etc /var/lib/kdops -newermt '2000-01-01' | sort | md5sum"
    )
    code, shown, said = kdops.run("deploy", "lab0", "--check", "--diff")
    assert code == 0, said
    assert "+ExecStart=/opt/kdops/venvs" in shown
    assert "+speculative-algorithm: DDTREE" in shown
    after = kdops.lab.ssh("lab0", "find /opt/kdops /etc /var/lib/kdops -newermt '2000-01-01' | sort | md5sum")
    assert before == after


def test_api_key_is_nowhere_but_in_its_file(kdops: Deployer, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(SENTINEL + "\n")
    ssh_args = f"-F {kdops.lab.ssh_config}"
    inventory = write_inventory(tmp_path / "keyed", ssh_args, engine_api_key_file=str(key))
    keyed = Deployer(kdops.lab, kdops.tree, inventory)
    code, shown, said = keyed.run("deploy", "lab0", "--json")
    assert code == 0, said
    assert SENTINEL not in shown + said
    assert json.loads(shown)["outcome"]["result"] == "committed"
    assert kdops.lab.ssh("lab0", f"stat -c %a {KEY_PLACE}") == "600"
    folders = "/var/lib/kdops /opt/kdops/releases /etc/systemd /tmp /root"
    assert kdops.lab.ssh("lab0", f"grep -rl {SENTINEL[:-1]}[c] {folders}", check=False) == ""
    journal = f"journalctl --since -5min | grep -c '{SENTINEL[:-1]}[c]'"
    assert kdops.lab.ssh("lab0", journal, check=False) == "0"
    process = f"grep -l '{SENTINEL[:-1]}[c]' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null"
    assert kdops.lab.ssh("lab0", process, check=False) == ""


def test_a_changed_api_key_is_a_change_and_goes_back_with_its_release(
    kdops: Deployer, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    ssh_args = f"-F {kdops.lab.ssh_config}"
    inventory = write_inventory(tmp_path / "keyed", ssh_args, engine_api_key_file=str(key))
    keyed = Deployer(kdops.lab, kdops.tree, inventory)

    def answer(secret: str) -> str:
        asked = f"-H 'Authorization: Bearer {secret}' localhost:30000/server_info"
        return kdops.lab.ssh("lab0", f"curl -s -o /dev/null -w '%{{http_code}}' {asked}")

    key.write_text("sk-one\n")
    code, said = keyed.deploy()
    assert code == 0, said
    before = keyed.property("InvocationID")
    assert (answer("sk-one"), answer("sk-two")) == ("200", "401")

    key.write_text("sk-two\n")
    code, shown, _ = keyed.run("plan", "lab0")
    assert "the API key" in shown
    code, said = keyed.deploy()
    assert code == 0, said
    assert keyed.property("InvocationID") != before
    assert (answer("sk-one"), answer("sk-two")) == ("401", "200")

    key.write_text("sk-three\n")
    code, said = keyed.deploy(mode="die")
    assert code == 6, said
    assert (answer("sk-two"), answer("sk-three")) == ("200", "401"), "the key goes back with its release"
    assert kdops.lab.ssh("lab0", "find /etc/kdops/credentials -type f") == KEY_PLACE
    key.write_text("sk-two\n")
    code, shown, _ = keyed.run("plan", "lab0")
    assert shown.startswith("nothing to change")


def test_prune_frees_what_no_kept_release_names(kdops: Deployer) -> None:
    code, said = kdops.deploy(mode="die")
    assert code == 6
    code, said = kdops.deploy()
    assert code == 0, said
    code, shown, _ = kdops.run("prune", "lab0", "--json")
    listed = [item["path"] for item in json.loads(shown)["items"] if "/releases/" in item["path"]]
    assert (code, len(listed)) == (0, 1)
    lab_venv = "/opt/kdops/venvs"
    assert all(not item["path"].startswith(lab_venv) for item in json.loads(shown)["items"])
    code, _, said = kdops.run("prune", "lab0", "--delete")
    assert code == 0, said
    assert kdops.lab.ssh("lab0", f"ls -d {listed[0]}", check=False) == ""
    assert kdops.serves() != ""


def test_unit_of_another_origin_is_not_overwritten(kdops: Deployer) -> None:
    kdops.lab.ssh("lab0", f"printf '[Service]\\nExecStart=/bin/true\\n' >/etc/systemd/system/{UNIT}")
    code, said = kdops.deploy()
    assert code == 5
    assert "kdops did not write it" in said


def test_a_terminal_shows_one_line_that_is_drawn_again(kdops: Deployer) -> None:
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    command = [sys.executable, "-m", "kdops.cli.main", "deploy", "lab0", "-i", str(kdops.inventory)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(kdops.tree), "PATH": path, "TERM": "xterm-256color"}
    with subprocess.Popen(
        command, cwd=kdops.tree, env=environment, stdin=inner, stdout=subprocess.PIPE, stderr=inner, text=True
    ) as process:
        os.close(inner)
        screen = bytearray()
        with contextlib.suppress(OSError):  # EIO: the command has ended
            while piece := os.read(outer, 65536):
                screen += piece
        os.close(outer)
        assert process.stdout is not None
        last = process.stdout.read()
    shown = screen.decode()
    assert process.returncode == 0, shown
    assert re.fullmatch(
        r"lab0: ddtree-\w{10} serves \(the first one\), \d+ s: upload .*, load .*, smoke .*\n", last
    )
    for phase in ("preflight", "upload", "start", "smoke test"):
        assert re.search(rf"\x1b\[1;7m{phase}", shown), phase
    assert "\n[upload]" not in shown
    assert "first deploy: installs the guard" in shown
