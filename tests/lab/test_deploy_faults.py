"""Faults in the middle of a deploy, on a real systemd host with a stand-in for the engine.

After each of them, once the command or the guard has finished, the last committed or the new release serves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deploying import UNIT, Deployer, standin_tree, until, with_mode, write_inventory

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab

BALLAST = 24 * 1024 * 1024


@pytest.fixture(scope="module")
def kdops(lab: LabHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    """kdops with the stand-in engine, on a clean lab0."""
    folder = tmp_path_factory.mktemp("deploy")
    lab.clean("lab0")
    inventory = write_inventory(folder / "inventory", f"-F {lab.ssh_config}")
    yield Deployer(lab, standin_tree(folder / "tree"), inventory)
    lab.clean("lab0")


@pytest.fixture
def heavy(kdops: Deployer, tmp_path: Path) -> Deployer:
    """The same, with a release that was never uploaded before and takes a while to."""
    return Deployer(kdops.lab, standin_tree(tmp_path / "heavy", BALLAST), kdops.inventory)


@pytest.fixture
def old(kdops: Deployer) -> str:
    """A committed, serving release before the fault; the only one of this profile, and healthy."""
    kdops.lab.ssh("lab0", "rm -f /run/standin-go")
    if not (kdops.serves().startswith("linear-") and kdops.finished()):
        code, said = kdops.deploy("--profile", "linear")
        assert code == 0, said
    return kdops.serves()


def unchanged(kdops: Deployer, old: str, invocation: str) -> bool:
    """The old engine was never stopped."""
    return kdops.serves() == old and kdops.property("InvocationID") == invocation


def test_first_deploy_that_fails_is_stopped_with_the_reason_in_status(kdops: Deployer) -> None:
    kdops.lab.clean("lab0")
    code, said = kdops.deploy(mode="die")
    assert code == 6, said
    assert "CUDA out of memory (stand-in)" in said
    assert "first deploy: the service is stopped and disabled" in said
    assert kdops.property("ActiveState") in ("inactive", "failed")
    assert kdops.property("UnitFileState") == "disabled"
    _, shown, _ = kdops.run("status", "lab0")
    assert "the engine died while loading" in shown


def test_link_cut_during_upload(kdops: Deployer, heavy: Deployer, old: str) -> None:
    invocation = kdops.property("InvocationID")
    process = heavy.start("deploy", "lab0", "--why", "link cut")
    process.until("[upload]")
    kdops.lab.cut("lab0")
    code, said = process.end()
    kdops.lab.heal("lab0")
    assert code == 3
    assert "the release that served before still serves" in said
    assert "kdops status lab0" in said
    until(kdops.finished, "the guard undoes the deploy")
    assert kdops.outcome()["result"] == "aborted"
    assert unchanged(kdops, old, invocation)
    assert kdops.lab.ssh("lab0", "ls -A /opt/kdops/releases | grep partial", check=False) == ""


def test_disk_full_during_upload(kdops: Deployer, heavy: Deployer, old: str) -> None:
    invocation = kdops.property("InvocationID")
    process = heavy.start("deploy", "lab0")
    process.until("[upload]")
    kdops.lab.ssh("lab0", "fallocate -l $(($(df --output=avail -B1 /root | tail -n1) - 1000000)) /root/full")
    code, said = process.end()
    kdops.lab.ssh("lab0", "rm /root/full")
    assert code == 1, said
    assert "No space left" in said
    assert f"nothing was changed: release {old} serves" in said
    assert kdops.finished()
    assert unchanged(kdops, old, invocation)


def test_host_killed_between_switch_and_restart(kdops: Deployer, old: str) -> None:
    leave_in_phase(kdops, "switching")
    kdops.lab.kill("lab0")
    kdops.lab.on("lab0")
    until(lambda: kdops.finished() and kdops.serves() == old, "the old release serves after the boot")
    outcome = kdops.outcome()
    assert (outcome["result"], outcome["by"], outcome["serves"]) == ("rolled-back", "guard", old)
    assert "the host was restarted in phase 'switching'" in outcome["failure"]["cause"]


def test_engine_that_dies_during_load(kdops: Deployer, old: str) -> None:
    code, said = kdops.deploy(mode="die")
    assert code == 6
    assert "the engine died while loading (exit status 70)" in said
    assert "RuntimeError: CUDA out of memory (stand-in)" in said
    assert "see docs/failures.md#oom" in said
    assert f"rolled back: release {old} serves" in said
    assert kdops.serves() == old
    _, shown, _ = kdops.run("status", "lab0", "--json")
    assert json.loads(shown)["hosts"][0]["failure_class"].startswith("oom")


def test_rolling_back_that_fails_too_is_said_and_the_next_deploy_serves(kdops: Deployer, old: str) -> None:
    kdops.lab.ssh("lab0", "touch /run/standin-broken")
    code, said = kdops.deploy("--profile", "autoregressive")
    kdops.lab.ssh("lab0", "rm /run/standin-broken")
    assert code == 7, said
    assert "exit status 65" in said
    assert "rolling back failed too: NO release serves" in said
    assert kdops.finished() and kdops.serves() == ""
    outcome = kdops.outcome()
    assert (outcome["result"], outcome["serves"]) == ("rollback-failed", None)
    _, shown, _ = kdops.run("status", "lab0")
    assert "rollback-failed" in shown and "nothing serves" in shown
    code, said = kdops.deploy("--profile", "linear")
    assert code == 0, said
    assert kdops.serves() == old


def test_engine_that_never_gets_ready(kdops: Deployer, old: str, tmp_path: Path) -> None:
    ssh_args = f"-F {kdops.lab.ssh_config}"
    impatient = write_inventory(tmp_path, ssh_args, kdops_ready_timeout=4)
    code, said = Deployer(kdops.lab, kdops.tree, impatient).deploy(mode="hang")
    assert code == 6
    assert "was not ready after" in said
    assert "last phase: phase=weights" in said
    assert kdops.serves() == old


def test_engine_with_other_settings_than_requested(kdops: Deployer, old: str) -> None:
    code, said = kdops.deploy(mode="wrong")
    assert code == 6
    assert "page_size: requested 1, effective 64" in said
    assert kdops.serves() == old


def test_two_deploys_at_the_same_time(kdops: Deployer, old: str) -> None:
    first = kdops.start("deploy", "lab0", "--why", "new drafter", *with_mode("held"))
    first.until("[starting]")
    code, said = kdops.deploy("--profile", "autoregressive")
    assert code == 4, said
    assert "(new drafter)" in said
    kdops.let_go()
    code, said = first.end()
    assert code == 0, said
    assert kdops.serves() != old


def test_interrupt_before_the_switch_changes_nothing(kdops: Deployer, heavy: Deployer, old: str) -> None:
    invocation = kdops.property("InvocationID")
    process = heavy.start("deploy", "lab0")
    process.until("[upload]")
    process.interrupt()
    code, said = process.end()
    assert code == 130
    assert f"nothing was changed: release {old} serves" in said
    assert kdops.finished()
    assert unchanged(kdops, old, invocation)


def test_interrupt_after_the_switch_leaves_it_to_the_guard(kdops: Deployer, old: str) -> None:
    process = kdops.start("deploy", "lab0", *with_mode("held"))
    process.until("[starting]")
    process.interrupt()
    code, said = process.end()
    kdops.let_go()
    assert code == 130, said
    assert "the guard on lab0 goes on" in said
    assert "kdops status lab0" in said
    until(kdops.finished, "the guard commits the release")
    assert kdops.outcome()["by"] == "guard"
    assert kdops.serves() == kdops.outcome()["release"] != old


PHASES = [
    pytest.param("[starting]", "committed", id="in starting"),
    pytest.param("[lock]", None, id="in lock", marks=pytest.mark.matrix),
    pytest.param("[upload]", "aborted", id="in upload", marks=pytest.mark.matrix),
    pytest.param("[switch]", None, id="in switch", marks=pytest.mark.matrix),
    pytest.param("[start]", None, id="in start", marks=pytest.mark.matrix),
    pytest.param("[smoke test]", "committed", id="in smoke test", marks=pytest.mark.matrix),
    pytest.param("[commit]", "committed", id="in commit", marks=pytest.mark.matrix),
]


@pytest.mark.parametrize(("marker", "result"), PHASES)
def test_client_killed_and_never_back(
    kdops: Deployer, heavy: Deployer, old: str, marker: str, result: str | None
) -> None:
    loads = marker in ("[start]", "[starting]")
    process = heavy.start("deploy", "lab0", *with_mode("held" if loads else ""))
    process.until(marker)
    process.kill()
    kdops.let_go()
    timer = "systemctl is-active kdops-guard.timer"
    # In "[lock]" the host may take the lock only after its client is dead: the timer alone says nothing yet.
    until(
        lambda: kdops.lab.ssh("lab0", timer, check=False) == "inactive" and kdops.finished(),
        "the guard ends it",
    )
    outcome = kdops.outcome()
    assert kdops.finished()
    assert outcome["result"] in ((result,) if result else ("rolled-back", "committed", "aborted"))
    assert kdops.serves() == outcome["serves"]


@pytest.mark.matrix
def test_client_killed_while_going_back(kdops: Deployer, old: str) -> None:
    process = kdops.start("deploy", "lab0", *with_mode("die"))
    process.until("[restore]")
    process.kill()
    until(lambda: kdops.finished() and kdops.serves() == old, "the guard puts the old release back")


@pytest.mark.parametrize("how", ["systemctl reboot", pytest.param("kill", marks=pytest.mark.matrix)])
def test_reboot_mid_deploy(kdops: Deployer, old: str, how: str) -> None:
    boot = kdops.lab.ssh("lab0", "cat /proc/sys/kernel/random/boot_id")
    process = kdops.start("deploy", "lab0", *with_mode("held"))
    process.until("[starting]")
    if how == "kill":
        kdops.lab.kill("lab0")
        kdops.lab.on("lab0")
    else:
        kdops.lab.ssh("lab0", how, check=False)
    code, said = process.end()
    assert code in (1, 3, 6), said
    asked = "cat /proc/sys/kernel/random/boot_id"
    until(lambda: kdops.lab.ssh("lab0", asked, check=False) not in ("", boot), "the host boots")
    until(lambda: kdops.finished() and kdops.serves() == old, "the old release serves after the boot")


def test_stale_lock_of_a_dead_client(kdops: Deployer, old: str) -> None:
    leave_in_phase(kdops, "locked", lease=600)
    code, said = kdops.deploy()
    assert code == 4
    assert "dead@elsewhere" in said
    kdops.guard("heartbeat", "--id", "dead", "--seconds", "0")
    code, said = kdops.deploy()
    assert code == 0, said
    assert kdops.serves() != old


def test_unit_edited_by_hand_and_by_systemctl_edit(kdops: Deployer, old: str) -> None:
    folder = f"/etc/systemd/system/{UNIT}.d"
    kdops.lab.ssh("lab0", f"echo '# edited' >>/etc/systemd/system/{UNIT}; mkdir {folder}")
    kdops.lab.ssh("lab0", f"printf '[Service]\\nNice=5\\n' >{folder}/override.conf; systemctl daemon-reload")
    code, shown, said = kdops.run("plan", "lab0", "--profile", "linear")
    assert code == 8
    assert "remedy: kdops deploy lab0 --profile linear puts" in said
    assert f"drift: /etc/systemd/system/{UNIT} was edited by hand" in shown
    assert f"drift: drop-in {folder}/override.conf (systemctl edit)" in shown
    code, said = kdops.deploy("--profile", "linear")
    assert code == 0, said
    assert f"drift: set aside {folder}/override.conf" in said
    code, shown, _ = kdops.run("plan", "lab0", "--profile", "linear")
    assert (code, shown.split(":")[0]) == (0, "nothing to change")
    assert kdops.property("Nice") == "0"


def leave_in_phase(kdops: Deployer, phase: str, lease: float = 30) -> None:
    """Be a client that dies right after it brought the host to `phase`."""
    target = kdops.state()["committed"][-1]["release"]
    request = {"id": "dead", "release": target, "unit": UNIT, "service": "lab0", "who": "dead@elsewhere"}
    kdops.guard("begin", stdin=json.dumps({**request, "lease": lease, "force": True}))
    if phase == "switching":
        kdops.guard("switch", "--id", "dead")
