"""`kdops check` and `kdops report` on a real systemd host: faults are injected for real and named first."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deploying import Deployer, standin_tree, write_inventory

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab
SECRET = "sentinel-of-the-environment"


@pytest.fixture(scope="module")
def kdops(lab: LabHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    """kdops with the stand-in engine; a release of it serves on lab0."""
    folder = tmp_path_factory.mktemp("check")
    lab.clean("lab0")
    inventory = write_inventory(folder / "inventory", f"-F {lab.ssh_config}")
    deployer = Deployer(lab, standin_tree(folder / "tree"), inventory)
    environment = f"{{SGLANG_USE_CPU_ENGINE: '1', DB_PASSWORD: {SECRET}}}"
    code, said = deployer.deploy("--set", f"engine_environment={environment}")
    assert code == 0, said
    yield deployer
    lab.clean("lab0")


def checked(kdops: Deployer, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    code, out, said = kdops.run("check", "lab0", "--json", *arguments)
    assert out, said
    return code, json.loads(out)["rows"]


def test_a_healthy_host_has_no_failing_row(kdops: Deployer) -> None:
    code, rows = checked(kdops)
    assert code == 0
    assert not [row for row in rows if row["state"] in ("fail", "warn")], rows
    seen = {row["check"]: row["state"] for row in rows}
    wanted = {"settings", "options", "disk", "memory", "ports", "model files", "caches", "sandbox", "systemd"}
    assert {seen.get(check) for check in wanted} == {"ok"}
    (options,) = [row for row in rows if row["check"] == "options"]
    assert options["found"] == "the host's SGLang 0.5.23 takes every option"
    traces = "/run/kdops-check/probe-* /run/systemd/system/kdops-probe* /tmp/kdops.*"
    assert kdops.lab.ssh("lab0", f"ls -d {traces}", check=False) == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("engine_context_length=9000",), "9000, but the model knows 8192 positions"),
        (("engine_memory_fraction=0.99", "engine_max_total_tokens=null"), "the memory fraction is too high"),
        (("engine_extra_args={enable-cach-report: true}",), "no option --enable-cach-report (did you mean"),
        (("engine_model=/srv/nowhere",), "/srv/nowhere does not exist"),
    ],
)
def test_a_wrong_setting_is_the_first_row(kdops: Deployer, settings: tuple[str, ...], said: str) -> None:
    code, rows = checked(kdops, *(word for setting in settings for word in ("--set", setting)))
    assert code == 5
    assert said in rows[0]["found"]
    assert rows[0]["remedy"]


def test_a_taken_port(kdops: Deployer) -> None:
    kdops.lab.ssh("lab0", "systemd-run -q --unit=kdops-squatter python3 -m http.server 30123 -b 127.0.0.1")
    try:
        kdops.lab.ssh("lab0", "until ss -Hltn 'sport = :30123' | grep -q .; do sleep 0.1; done")
        code, rows = checked(kdops, "--set", "engine_port=30123")
    finally:
        kdops.lab.ssh("lab0", "systemctl stop kdops-squatter")
    assert code == 5
    assert rows[0]["found"].startswith("port 30123 is taken: process python3 (pid ")
    assert "unit kdops-squatter.service" in rows[0]["found"]


def test_a_cache_that_the_user_cannot_write(kdops: Deployer) -> None:
    locked = "for d in /var/cache/kdtree/*-*/; do install -d -o root -m 700 $d/triton; done"
    kdops.lab.ssh("lab0", locked)
    try:
        code, rows = checked(kdops)
    finally:
        kdops.lab.ssh("lab0", "rmdir /var/cache/kdtree/*-*/triton")
    assert code == 5
    assert rows[0]["check"] == "caches"
    assert "user kdtree cannot write its cache" in rows[0]["found"]
    assert "chown -R kdtree /var/cache/kdtree/" in rows[0]["remedy"]


@pytest.mark.matrix
def test_a_cache_that_systemd_cannot_make(kdops: Deployer) -> None:
    kdops.lab.ssh("lab0", "mv /var/cache/kdtree /var/cache/aside; touch /var/cache/kdtree")
    try:
        code, rows = checked(kdops)
    finally:
        kdops.lab.ssh("lab0", "rm /var/cache/kdtree; mv /var/cache/aside /var/cache/kdtree")
    assert code == 5
    assert rows[0]["check"] == "caches"
    assert "status 239" in rows[0]["found"]


def test_a_truncated_model_stops_a_deploy_before_the_old_engine_is_touched(kdops: Deployer) -> None:
    before, serves = kdops.property("InvocationID"), kdops.serves()
    kdops.lab.ssh("lab0", "cp -rL /opt/models/tiny-pair/target /var/tmp/cut")
    kdops.lab.ssh("lab0", "truncate -s -1000 /var/tmp/cut/*.safetensors")
    try:
        code, said = kdops.deploy("--set", "engine_model=/var/tmp/cut")
    finally:
        kdops.lab.ssh("lab0", "rm -r /var/tmp/cut")
    assert code == 5, said
    assert "/var/tmp/cut/model.safetensors has " in said
    assert "it is cut off" in said
    assert "nothing was changed" in said
    assert "[lock]" not in said
    assert "[restore]" not in said
    assert (kdops.property("InvocationID"), kdops.serves()) == (before, serves)
    _, shown, _ = kdops.run("status", "lab0")
    assert "deploy again" not in shown


def test_a_full_disk(kdops: Deployer) -> None:
    free = "df --output=avail -B1 /opt/kdops | tail -n1"
    kdops.lab.ssh("lab0", f"fallocate -l $(($({free}) - 1000000)) /opt/kdops/full")
    try:
        code, rows = checked(kdops)
    finally:
        kdops.lab.ssh("lab0", "rm /opt/kdops/full")
    assert code == 5
    assert "the disk is too full: about " in rows[0]["found"]


def test_a_report_holds_everything_but_secrets(kdops: Deployer, tmp_path: Path) -> None:
    file = tmp_path / "report.tar.gz"
    code, out, said = kdops.run("report", "lab0", "--out", str(file))
    assert (code, out.strip()) == (0, str(file)), said
    assert file.stat().st_mode & 0o777 == 0o600
    texts = read(file)
    wanted = "journal.txt unit.txt settings.json server_info.json metrics.txt gpu.txt stacks.txt"
    assert set(wanted.split()) <= set(texts)
    missing = json.loads(texts["manifest.json"])["missing"]
    assert set(missing) <= {"bench.json"}
    assert not [name for name, text in texts.items() if SECRET in text]
    assert "stand-in starts as healthy" in texts["journal.txt"]
    assert "===== pid" in texts["stacks.txt"]
    code, _, said = kdops.run("report", "lab0", "--out", str(file))
    assert code == 2
    assert "name a new file" in said


def read(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        members = [(member.name.partition("/")[2], archive.extractfile(member)) for member in archive]
        return {name: body.read().decode() for name, body in members if body}
