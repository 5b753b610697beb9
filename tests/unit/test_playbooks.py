"""The playbooks' own rules, asked of Ansible itself: what the inventory may say, and that hosts are named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kdops import paths

pytestmark = pytest.mark.unit
PLAYBOOKS = paths.data("playbooks")
NAMES = ("ansible_ssh_args", "ansible_python_interpreter", "kdops_lease", "kdops_poll", "kdops_ready_timeout")


def ansible(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", *map(str, arguments)],
        env={**os.environ, "ANSIBLE_ROLES_PATH": str(PLAYBOOKS / "roles"), "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_inventory_outranks_every_default_but_the_host_key_check(tmp_path: Path) -> None:
    own = {
        "ansible_ssh_args": "-o StrictHostKeyChecking=no -o Port=2222",
        "ansible_python_interpreter": "/opt/python",
        "kdops_lease": 7,
        "engine_start_timeout": 99,
    }
    inventory = {
        "all": {"hosts": {"own": {}, "plain": {}}, "children": {"g": {"hosts": {"own": {}}, "vars": own}}}
    }
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump(inventory))
    shown = "{{ dict(names | zip(names | map('extract', vars))) | to_json }}"
    task = {
        "ansible.builtin.copy": {"content": shown, "dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.json"}
    }
    play = yaml.safe_load((PLAYBOOKS / "deploy.yml").read_text())[0]
    play |= {"tasks": [{**task, "delegate_to": "localhost", "vars": {"names": list(NAMES)}}]}
    play["vars_files"] = [str(PLAYBOOKS / name) for name in play["vars_files"]]
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    done = ansible("-i", tmp_path / "inventory.yml", tmp_path / "play.yml", "-l", "own,plain")
    assert done.returncode == 0, done.stdout + done.stderr
    found = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("own", "plain")}
    assert found["own"]["ansible_python_interpreter"] == "/opt/python"
    assert (found["own"]["kdops_lease"], found["own"]["kdops_ready_timeout"]) == (7, 99)
    arguments = found["own"]["ansible_ssh_args"]
    assert arguments.index("StrictHostKeyChecking=yes") < arguments.index("StrictHostKeyChecking=no")
    assert "Port=2222" in arguments
    assert found["plain"]["kdops_poll"] == 1
    assert "StrictHostKeyChecking=yes" in found["plain"]["ansible_ssh_args"]
    assert "ServerAliveInterval=2" in found["plain"]["ansible_ssh_args"]


def test_without_a_limit_nothing_is_done(tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_text("all: {hosts: {a: {ansible_host: 127.0.0.9, ansible_port: 9}}}")
    done = ansible("-i", tmp_path / "inventory.yml", PLAYBOOKS / "stop.yml")
    assert done.returncode == 2
    assert "name the hosts with -l HOST" in done.stdout
    assert "ok=0" in done.stdout


@pytest.mark.parametrize("playbook", sorted(PLAYBOOKS.glob("*.yml")), ids=lambda path: path.stem)
def test_every_playbook_has_the_same_rules(playbook: Path) -> None:
    (play,) = yaml.safe_load(playbook.read_text())
    assert play["roles"] == ["kdops"]
    assert play["vars_files"] == ["vars/connection.yml"]
