"""The main job with the real engine: deploy, nothing to do, change, roll back, refused setting, dead client.

The tests build on each other, in order: an engine start costs half a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from deploying import REPOSITORY, Deployer, until, write_inventory

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = [pytest.mark.lab, pytest.mark.engine]

SENTINEL = "sk-sentinel-99d2"


@pytest.fixture(scope="module")
def kdops(lab: LabHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    """The real thing on a clean lab0, with an API key; the engine's starts are counted at the end."""
    folder = tmp_path_factory.mktemp("engine")
    lab.clean("lab0")
    key = folder / "key"
    key.write_text(SENTINEL + "\n")
    ssh_args = f"-F {lab.ssh_config}"
    inventory = write_inventory(
        folder / "inventory", ssh_args, engine_api_key_file=str(key), engine_start_timeout=300
    )
    since = lab.clock("lab0")
    yield Deployer(lab, REPOSITORY, inventory)
    lab.count_starts("lab0", since)
    lab.clean("lab0")


def test_first_deploy_serves_and_shows_its_phases(kdops: Deployer) -> None:
    code, out, said = kdops.run("deploy", "lab0", "--why", "first", timeout=300)
    assert code == 0, said
    assert "[starting] phase=imports" in said
    assert "[smoke test] passed" in said
    assert kdops.serves().startswith("ddtree-")
    assert out.startswith("lab0: ddtree-")
    assert "serves (the first one), " in out
    seconds = kdops.outcome()["seconds"]
    assert list(seconds) == ["locked", "uploading", "switching", "starting", "smoked"]
    assert 0 < kdops.outcome()["smoke"]["seconds"] < seconds["starting"]


def test_same_deploy_again_restarts_nothing(kdops: Deployer) -> None:
    invocation = kdops.property("InvocationID")
    code, out, said = kdops.run("deploy", "lab0", "--json")
    assert code == 0, said
    assert json.loads(out)["changed"] is False
    assert kdops.property("InvocationID") == invocation


def test_another_profile_then_roll_back(kdops: Deployer) -> None:
    before = kdops.serves()
    code, said = kdops.deploy("--profile", "linear")
    assert code == 0, said
    assert kdops.serves().startswith("linear-")
    code, _, said = kdops.run("rollback", "lab0", "--why", "compare", timeout=300)
    assert code == 0, said
    assert kdops.serves() == before
    assert [c["release"] for c in kdops.state()["committed"]][-1] == before


def test_misspelt_option_is_refused_before_anything_stops(kdops: Deployer) -> None:
    before, invocation = kdops.serves(), kdops.property("InvocationID")
    code, said = kdops.deploy("--set", "engine_extra_args={no-such-option: 1}")
    assert code == 2, said
    assert "no-such-option" in said
    assert kdops.serves() == before
    assert kdops.property("InvocationID") == invocation


def test_client_killed_while_the_engine_loads(kdops: Deployer) -> None:
    process = kdops.start("deploy", "lab0", "--profile", "autoregressive")
    process.until("[starting] phase=")
    process.kill()
    until(kdops.finished, "the guard commits the release once it is ready and tested", 200)
    outcome = kdops.outcome()
    assert (outcome["result"], outcome["by"]) == ("committed", "guard")
    assert outcome["smoke"]["settings_checked"] > 10
    assert kdops.serves() == outcome["release"]
    assert kdops.property("Restart") == "on-failure"


def test_api_key_is_nowhere_but_in_its_file(kdops: Deployer) -> None:
    for place in ("/var/lib/kdops", "/opt/kdops/releases", "/etc/systemd", "/tmp"):
        assert kdops.lab.ssh("lab0", f"grep -rl {SENTINEL[:-1]}[2] {place}", check=False) == ""
    assert kdops.lab.ssh("lab0", f"journalctl | grep -c '{SENTINEL[:-1]}[2]'", check=False) == "0"
    process = f"grep -l '{SENTINEL[:-1]}[2]' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null"
    assert kdops.lab.ssh("lab0", process, check=False) == ""
