"""`kdops ab` on a real systemd host with a stand-in engine: in the end the old release serves again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deploying import UNIT, Deployer, standin_tree, until, write_inventory

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab
QUICK = ("ab", "linear", "ddtree", "--host", "lab0", "--quick", "--seed", "1")


@pytest.fixture(scope="module")
def kdops(lab: LabHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    """kdops with the stand-in engine, a committed release serving on a clean lab0."""
    folder = tmp_path_factory.mktemp("ab")
    lab.clean("lab0")
    made = Deployer(
        lab, standin_tree(folder / "tree"), write_inventory(folder / "inventory", f"-F {lab.ssh_config}")
    )
    code, said = made.deploy("--profile", "linear")
    assert code == 0, said
    yield made
    lab.clean("lab0")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of its own for each test."""
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def old(kdops: Deployer) -> str:
    """What serves before the measurement."""
    until(kdops.finished, "the transaction before is over")
    found = kdops.serves()
    assert found.startswith("linear-")
    return found


def runs(kdops: Deployer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kdops.run("ab", "list", "--json")[1])
    return found


def restored(kdops: Deployer, old: str) -> bool:
    return kdops.finished() and kdops.serves() == old


def test_a_quick_run_measures_restores_and_gives_no_verdict(kdops: Deployer, old: str, state: Path) -> None:
    code, out, said = kdops.run(*QUICK, timeout=300)
    assert code == 9, said
    assert "3 starts and one to restore" in said
    assert kdops.serves() == old
    assert kdops.outcome()["result"] == "tried"
    assert kdops.lab.ssh("lab0", "ls /opt/kdops/releases") == old, "trial releases are pruned"
    assert "exploratory" in out and "CHECK FAILED" not in out
    assert out.count("identical") == 2
    (one,) = runs(kdops)
    report = json.loads((state / "reports" / one["run"] / "report.json").read_text())
    assert report["arms"][1]["per_set"]["prose"]["acceptance_length"] == pytest.approx(2.0)
    assert report["valid"] is True
    code, again, _ = kdops.run("ab", "show", one["run"])
    assert (code, again) == (9, out)
    code, _, said = kdops.run("rollback", "lab0")
    assert code == 2 and "no earlier release" in said, "a rollback never sees a trial"


def test_ctrl_c_in_a_leg_restores_and_the_run_goes_on_later(kdops: Deployer, old: str) -> None:
    process = kdops.start(*QUICK)
    process.until("leg 2 of 3")
    process.until("  prose measured")
    process.interrupt()
    code, said = process.end()
    assert code == 130, said
    assert f"release {old} serves" in said and "1 of 3 legs are measured" in said
    assert kdops.serves() == old
    (one,) = runs(kdops)
    assert one["state"] == "interrupted"
    code, out, said = kdops.run("ab", "resume", one["run"], timeout=300)
    assert code == 9, said
    assert "leg 2 of 3" in said and "leg 1 of 3" not in said
    assert "CHECK FAILED" not in out
    assert kdops.serves() == old


def test_a_killed_client_leaves_the_rest_to_the_guard(kdops: Deployer, old: str) -> None:
    process = kdops.start(*QUICK)
    process.until("leg 2 of 3")
    process.until("  prose measured")
    process.kill()
    until(lambda: restored(kdops, old), "the guard restores what served", 60)
    assert kdops.outcome()["by"] == "guard"


def test_an_engine_that_dies_in_a_leg_ends_the_run_and_the_old_release_serves(
    kdops: Deployer, old: str
) -> None:
    process = kdops.start(*QUICK)
    process.until("leg 2 of 3")
    process.until("  prose measured")
    kdops.lab.ssh("lab0", f"systemctl kill -s KILL {UNIT}")
    code, said = process.end()
    assert code == 1, said
    assert "kdops ab resume" in said
    assert kdops.serves() == old


def test_a_cut_link_is_told_and_the_guard_restores(kdops: Deployer, old: str) -> None:
    process = kdops.start(*QUICK)
    process.until("leg 2 of 3")
    process.until("  prose measured")
    kdops.lab.cut("lab0")
    code, said = process.end()
    assert code == 3, said
    assert "the guard there restores it" in said
    kdops.lab.heal("lab0")
    until(lambda: restored(kdops, old), "the guard restores what served", 60)


def test_bench_measures_what_serves_and_deploys_nothing(kdops: Deployer, old: str) -> None:
    invocation = kdops.property("InvocationID")
    code, out, said = kdops.run("bench", "lab0", "--quick")
    assert code == 0, said
    assert "long-context" in out and "2.00" in out and "CHECK FAILED" not in out
    assert kdops.property("InvocationID") == invocation and kdops.serves() == old


@pytest.mark.matrix
def test_an_a_a_runs_eight_legs_and_finds_no_difference(kdops: Deployer, old: str, state: Path) -> None:
    code, out, said = kdops.run(
        "ab",
        "linear",
        "linear",
        "--host",
        "lab0",
        "--seed",
        "2",
        "--set",
        "linear:engine_page_size=1",
        timeout=600,
    )
    assert code in (0, 9), said
    assert "9 starts and one to restore" in said and "smallest reachable p 0.043" in said
    (one,) = runs(kdops)
    report = json.loads((state / "reports" / one["run"] / "report.json").read_text())
    compared = report["comparisons"]["linear#2"]
    # Not the call: one honest A/A in twenty makes a claim.
    assert compared["ratio"] == pytest.approx(1, abs=0.1)
    assert compared["low"] < compared["ratio"] < compared["high"] and compared["leg_sd"] > 0
    assert len(report["leg_rates"]) == 8 and report["valid"] is True
    assert "legs an arm for 5 %" in out
    assert kdops.serves() == old
