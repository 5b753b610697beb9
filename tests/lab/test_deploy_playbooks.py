"""The playbooks with plain Ansible on a real systemd host, with a stand-in for the engine."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deploying import UNIT, Deployer, standin_tree, until, with_mode, write_inventory

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab
SENTINEL = "sentinel-4a1e"


@pytest.fixture
def kdops(lab: LabHandle, tmp_path: Path) -> Iterator[Deployer]:
    """kdops with the stand-in engine and a clean lab0."""
    lab.clean("lab0")
    yield Deployer(
        lab, standin_tree(tmp_path / "tree"), write_inventory(tmp_path / "i", f"-F {lab.ssh_config}")
    )
    lab.clean("lab0")


def listing(kdops: Deployer) -> str:
    """What kdops might have left on the host."""
    places = "/opt/kdops /etc/systemd/system /etc/kdops /var/lib/kdops /run/kdops* /tmp/kdops*"
    return kdops.lab.ssh("lab0", f"find {places} -maxdepth 2 2>/dev/null | sort", check=False)


def test_check_asks_the_host_and_leaves_nothing_anywhere(kdops: Deployer) -> None:
    before, here = listing(kdops), set(Path(tempfile.gettempdir()).glob("kdops.*"))
    done = kdops.playbook("check.yml", "--diff")
    assert done.returncode == 0, done.stdout
    assert "+speculative-algorithm: DDTREE" in done.stdout
    assert '"serves": "nothing"' in done.stdout
    assert listing(kdops) == before
    assert set(Path(tempfile.gettempdir()).glob("kdops.*")) == here
    kdops.lab.ssh("lab0", "systemd-run -q --unit=kdops-squatter python3 -m http.server 30000 -b 127.0.0.1")
    kdops.lab.ssh("lab0", "until ss -Hltn 'sport = :30000' | grep -q .; do sleep 0.1; done")
    done = kdops.playbook("check.yml")
    assert done.returncode == 2
    assert "port 30000 is taken" in done.stdout


def test_rollback_stop_and_teardown(kdops: Deployer) -> None:
    done = kdops.playbook("rollback.yml")
    assert done.returncode == 2
    assert "no earlier release to go back to" in done.stdout
    for profile in ("linear", "ddtree"):
        code, said = kdops.deploy("--profile", profile)
        assert code == 0, said
    done = kdops.playbook("rollback.yml")
    assert done.returncode == 0, done.stdout
    assert kdops.serves().startswith("linear-")
    assert (kdops.outcome()["result"], kdops.outcome()["why"]) == ("committed", "playbooks/rollback.yml")

    opened = kdops.start("deploy", "lab0", *with_mode("held"))
    opened.until("[starting]")
    for refused in ("stop.yml", "teardown.yml"):
        done = kdops.playbook(refused)
        assert done.returncode == 2
        assert "wait for it" in done.stdout
    kdops.let_go()
    assert opened.end()[0] == 0

    done = kdops.playbook("stop.yml")
    assert done.returncode == 0, done.stdout
    assert kdops.property("ActiveState") == "inactive"
    assert "changed=0" in kdops.playbook("stop.yml").stdout

    venvs = kdops.lab.ssh("lab0", "ls /opt/kdops/venvs")
    done = kdops.playbook("teardown.yml")
    assert done.returncode == 0, done.stdout
    left = "find / -xdev -path /proc -prune -o \\( -name '*kdops*' -o -name '*kdtree*' \\) -print"
    assert (
        kdops.lab.ssh("lab0", f"{left} | grep -v -e ^/opt/kdops -e kdops-lab; ls /opt/kdops", check=False)
        == "venvs"
    )
    assert kdops.lab.ssh("lab0", "ls /opt/kdops/venvs") == venvs
    assert (
        kdops.lab.ssh("lab0", f"systemctl show {UNIT} kdops-guard.timer -P LoadState").split()
        == ["not-found"] * 2
    )
    assert kdops.lab.ssh("lab0", "ls /opt/models/tiny-pair/target/config.json")
    assert "changed=0" in kdops.playbook("teardown.yml").stdout


def test_old_python_on_the_host_is_said_in_a_sentence(kdops: Deployer, tmp_path: Path) -> None:
    kdops.lab.ssh(
        "lab0", "printf '#!/bin/sh\\n[ $1 = -c ] && echo 3.10\\n' >/tmp/python310; chmod +x /tmp/python310"
    )
    ssh_args = f"-F {kdops.lab.ssh_config}"
    guard = ["/tmp/python310", "-IB", "/opt/kdops/guard/none.pyz"]
    old = Deployer(kdops.lab, kdops.tree, write_inventory(tmp_path / "old", ssh_args, kdops_guard=guard))
    code, said = old.deploy()
    kdops.lab.ssh("lab0", "rm /tmp/python310")
    assert code == 1
    assert "is Python 3.10; kdops needs 3.11 or newer there" in said


def test_differences_name_environment_variables_without_their_values(kdops: Deployer) -> None:
    code, said = kdops.deploy()
    assert code == 0, said
    secret = f"engine_environment={{DB_URL: 'u:{SENTINEL}@h'}}"
    for arguments in (("deploy", "lab0", "--check", "--diff"), ("plan", "lab0")):
        code, shown, said = kdops.run(*arguments, "--set", secret)
        assert code == 0, said
        assert "DB_URL is new" in shown
        assert SENTINEL not in shown + said
    done = kdops.playbook("deploy.yml", "--check", "--diff")
    assert done.returncode == 0, done.stdout
    assert "TRITON_CACHE_DIR" not in done.stdout


def test_the_guards_words_are_the_reason_that_is_recorded(kdops: Deployer, tmp_path: Path) -> None:
    ssh_args = f"-F {kdops.lab.ssh_config}"
    inventory = write_inventory(tmp_path / "inventory", ssh_args, engine_model="/srv/no-such-model")
    done = Deployer(kdops.lab, kdops.tree, inventory).playbook("deploy.yml")
    assert done.returncode == 2, done.stdout
    failure = kdops.outcome()["failure"]
    assert failure["title"] == "a model is not on the host"
    assert failure["remedy"] == "copy it there, or correct engine_model/engine_draft_model"
    cause = failure["cause"]
    assert cause == "/srv/no-such-model does not exist"
    until(kdops.finished, "it is undone")
    assert (
        json.loads(kdops.lab.ssh("lab0", "tail -n 1 /var/lib/kdops/audit.ndjson"))["failure"]["cause"]
        == cause
    )
