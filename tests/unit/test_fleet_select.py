"""Which inventory, which host: the meaning of NAME and what a host must say about itself."""

from pathlib import Path

import pytest
from fleet_files import host, write

from kdops import fleet
from kdops.errors import UsageError

pytestmark = pytest.mark.unit


def two(folder: Path) -> Path:
    return write(
        folder,
        {
            "east.yml": "web: {hosts: {a: , b: }}\n",
            "west.yml": "web: {hosts: {c: }}\ndb: {hosts: {east: }}\n",
            "notes.txt": "not an inventory\n",
        },
    )


def test_name_is_host_then_group_then_stem(tmp_path: Path) -> None:
    found = fleet.load(two(tmp_path))
    assert [h.name for h in found.select("a")] == ["a"]
    assert [h.name for h in found.select("web")] == ["a", "b", "c"]
    assert [h.name for h in found.select("west")] == ["c", "east"]
    assert [h.name for h in found.select("east")] == ["east"], "a host goes before an inventory's stem"
    assert [h.name for h in found.chosen(["c", "web", "c"])] == ["c", "a", "b"], "each once"
    assert found.chosen([]) == found.chosen(None) == found.hosts
    assert found.one("db").name == "east"


def test_several_and_none_are_refused_with_names(tmp_path: Path) -> None:
    found = fleet.load(two(tmp_path))
    with pytest.raises(UsageError) as several:
        found.one("web")
    assert "a, b, c" in several.value.cause
    with pytest.raises(UsageError, match="did you mean 'web'"):
        found.select("wbe")


def test_same_host_in_two_inventories_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, {"x.yml": "all: {hosts: {a: }}\n", "y.yml": "all: {hosts: {a: }}\n"})
    with pytest.raises(UsageError, match="several inventories"):
        fleet.load(root).select("a")
    assert fleet.load(root / "x.yml").one("a").inventory == root / "x.yml"


def test_inventory_is_searched_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def names() -> list[str]:
        return [h.name for h in fleet.load().hosts]

    monkeypatch.delenv("KDOPS_INVENTORY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(write(tmp_path / "work", {"README": ""}))
    assert names() == ["b300", "ct200", "lab0"], "the packaged examples come last"
    write(tmp_path, {"config/kdops/inventories/i.yml": "all: {hosts: {user: }}\n"})
    assert names() == ["user"]
    write(tmp_path, {"work/inventories/i.yml": "all: {hosts: {here: }}\n"})
    assert names() == ["here"]
    write(tmp_path, {"env.yml": "all: {hosts: {env: }}\n"})
    monkeypatch.setenv("KDOPS_INVENTORY", str(tmp_path / "env.yml"))
    assert names() == ["env"]
    write(tmp_path, {"arg.yml": "all: {hosts: {arg: }}\n"})
    assert [h.name for h in fleet.load(tmp_path / "arg.yml").hosts] == ["arg"]


def test_missing_and_empty_places_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        fleet.load(tmp_path / "nowhere.yml")
    with pytest.raises(UsageError, match="no inventory in"):
        fleet.load(tmp_path)
    with pytest.raises(UsageError, match="is no file or folder"):
        fleet.load(Path("/dev/null"))
    monkeypatch.setenv("KDOPS_INVENTORY", str(tmp_path / "gone"))
    with pytest.raises(UsageError) as caught:
        fleet.load()
    assert "KDOPS_INVENTORY" in caught.value.cause


def test_ssh_target_takes_ansibles_variables(tmp_path: Path) -> None:
    extra = (
        "ansible_host: 10.0.0.7\nansible_user: ops\nansible_port: 2222\nansible_ssh_private_key_file: /k\n"
    )
    found = host(tmp_path, extra + "ansible_ssh_common_args: -F '/a b/c' -o X=y\n").ssh
    assert found == fleet.SshTarget("10.0.0.7", "ops", 2222, "/k", ("-F", "/a b/c", "-o", "X=y"))


def test_lab_hosts_use_the_labs_own_ssh_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KDOPS_CACHE", "XDG_CACHE_HOME", "KDOPS_LAB", "KDOPS_INVENTORY"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home with spaces"
    monkeypatch.setenv("HOME", str(home))

    def config_file() -> str:
        return fleet.load().one("lab").ssh.common_args[1]

    assert config_file() == f"{home}/.cache/kdops/lab/lab/ssh_config"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert config_file() == f"{tmp_path}/x/kdops/lab/lab/ssh_config"
    monkeypatch.setenv("KDOPS_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("KDOPS_LAB", "two")
    assert config_file() == f"{tmp_path}/c/lab/two/ssh_config"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gpu: h200-sxn", "did you mean 'h200-sxm'"),
        ("gpu: [1]", "is not known"),
        ("gpu_count: many", "whole number"),
        ("gpu_count: -1", "whole number"),
        ("ansible_port: 70000", "1 to 65535"),
        ('ansible_ssh_common_args: "-F \'open"', "No closing quotation"),
    ],
)
def test_host_facts_are_checked_with_their_place(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        host(tmp_path, line)
    assert said in caught.value.cause
    assert f"{tmp_path / 'fleet.yml'}:10" in caught.value.cause
