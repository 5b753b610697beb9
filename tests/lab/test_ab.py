"""`kdops ab` on a real systemd host with a stand-in engine: in the end the old release serves again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deploying import UNIT, Deployer, standin_tree, until, write_inventory
from host_service import find

from kdops.host import HostConnection
from kdops.host.sampler import reports
from kdops.store import Store

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab
QUICK = ("ab", "linear", "ddtree", "--host", "lab0", "--quick", "--seed", "1")

FAKE_NVIDIA_SMI = """#!/bin/sh
case "$*" in
*compute-apps*) cat /run/fake-compute-apps 2>/dev/null ;;
*) while :; do
    echo '0, 1755, 1980, 604.92, 700.00, 51, 94, 1101, 0x0000000000000004'
    case "$*" in *'-l 1'*) sleep 1 ;; *) exit ;; esac
  done ;;
esac
"""


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


@pytest.fixture
def fake_nvidia_smi(kdops: Deployer) -> Iterator[None]:
    """A program of that name on lab0 that replays what nvidia-smi wrote on an H200 under its power cap."""
    kdops.lab.ssh("lab0", f"cat >/usr/local/bin/nvidia-smi <<'END'\n{FAKE_NVIDIA_SMI}END")
    kdops.lab.ssh("lab0", "chmod +x /usr/local/bin/nvidia-smi")
    yield
    kdops.lab.ssh("lab0", "rm -f /usr/local/bin/nvidia-smi /run/fake-compute-apps")


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
    assert runs(kdops)[0]["state"] == "interrupted"


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


def test_bench_measures_what_serves_and_deploys_nothing(kdops: Deployer, old: str, state: Path) -> None:
    invocation = kdops.property("InvocationID")
    code, out, said = kdops.run("bench", "lab0", "--quick")
    assert code == 0, said
    assert "long-context" in out and "2.00" in out and "CHECK FAILED" not in out
    assert kdops.property("InvocationID") == invocation and kdops.serves() == old
    store = Store(state / "measurements.sqlite")
    evidence, samples = store.legs(store.runs()[0].id)[0]
    assert evidence["invocation"] == invocation and evidence["settings"]["page_size"] == 1
    assert evidence["end_tokens"] == [0, 2] and len(samples) == 16


def test_bench_through_an_openssh_forward_is_labelled_and_takes_levels_and_arrivals(
    kdops: Deployer, old: str, state: Path
) -> None:
    code, out, said = kdops.run(
        "bench", "lab0", "--quick", "--client", "ssh", "--concurrency", "2,6", "--arrivals", "4"
    )
    assert code == 0, said
    assert "note: latencies hold the way to the host: the client ran through an OpenSSH forward" in out
    assert "CHECK FAILED" not in out
    (one,) = runs(kdops)
    folder = state / "reports" / one["run"]
    (arm,) = json.loads((folder / "report.json").read_text())["arms"]
    assert [(each["level"], each["rate"]) for each in arm["together"]] == [(2, None), (6, None), (0, 4.0)]
    assert arm["together"][1]["tokens_per_second"] > arm["together"][0]["tokens_per_second"]
    first = json.loads((folder / "aiperf.jsonl").read_text().splitlines()[0])
    assert first["spec_decode_acceptance"]["mean_acceptance_length"] == pytest.approx(2.0)
    assert 'kdops_ab_acceptance_length{arm="linear"' in (folder / "openmetrics.txt").read_text()


def test_dashboards_pause_while_the_client_runs_here(kdops: Deployer, old: str) -> None:
    def asked() -> set[str]:
        with HostConnection(find(kdops.lab, "lab0")) as connection:
            return set(next(iter(reports(connection, 1.0, ()))))

    process = kdops.start("bench", "lab0", "--quick", "--client", "ssh", "--concurrency", "")
    process.until("  repetitive measured")
    assert asked() == {"paused", "time"}
    code, said = process.end()
    assert code == 0, said
    until(lambda: "engine" in asked(), "they ask again")
    assert kdops.lab.ssh("lab0", "ls -d /tmp/kdops-load.*", check=False) == ""


def test_gpus_are_sampled_and_lines_that_the_journal_dropped_are_found(
    kdops: Deployer, old: str, fake_nvidia_smi: None, state: Path
) -> None:
    process = kdops.start("bench", "lab0", "--quick")
    process.until("  prose measured")
    # journald's own words when it drops lines (systemd's sd-messages.h), through its own socket
    entry = f"MESSAGE_ID=a596d6fe7bfa4994828e72309e95d61e\\nMESSAGE=Suppressed 9 messages from {UNIT}\\n"
    kdops.lab.ssh("lab0", f"printf '{entry}' | logger --journald")
    code, said = process.end()
    assert code == 9, said
    (one,) = runs(kdops)
    report = json.loads((state / "reports" / one["run"] / "report.json").read_text())
    assert report["leg_gpus"][0]["sm_clock"] == 1755 and report["leg_gpus"][0]["reasons"] == ["power cap"]
    (finding,) = [each for each in report["findings"] if each["fatal"]]
    assert (
        finding["title"] == "the journal dropped lines of the engine" and "9 messages" in finding["evidence"]
    )


def test_a_second_client_turns_the_verdict_off_and_is_named_first(kdops: Deployer, old: str) -> None:
    process = kdops.start("bench", "lab0", "--quick")
    process.until("  repetitive measured")
    asked = '{"text": "me too", "sampling_params": {"max_new_tokens": 1}}'
    one_request = f"curl -sf -o /dev/null localhost:30000/generate -d '{asked}'"
    kdops.lab.ssh("lab0", f"for i in $(seq 40); do {one_request}; done")
    code, said = process.end()
    assert code == 9, said
    (one,) = runs(kdops)
    found = json.loads(kdops.run("diagnose", "--run", one["run"], "--json")[1])["findings"]
    assert found[0]["id"] == "foreign-load"


def test_foreign_work_on_the_gpus_refuses_the_leg(kdops: Deployer, old: str, fake_nvidia_smi: None) -> None:
    kdops.lab.ssh("lab0", "echo '1, 20480, trainer' >/run/fake-compute-apps")
    invocation = kdops.property("InvocationID")
    code, _, said = kdops.run(*QUICK)
    assert code == 5, said
    assert "the GPUs are not free" in said and "process 1 (trainer, 20480 MiB)" in said
    assert kdops.property("InvocationID") == invocation and kdops.serves() == old
    assert runs(kdops)[0]["state"] == "failed"


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
