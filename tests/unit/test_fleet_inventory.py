"""Inventories as Ansible reads them: values, precedence, origins, words, cache."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fleet_files import write

from kdops import fleet, paths
from kdops.errors import UsageError

pytestmark = pytest.mark.unit

LEVELS = (
    ("hosts.yml", "all"),
    ("hosts.yml", "parent"),
    ("hosts.yml", "child"),
    ("group_vars/all/a.yml", ""),
    ("group_vars/all/b.yml", ""),
    ("group_vars/parent.yml", ""),
    ("group_vars/child/a.yml", ""),
    ("group_vars/child/b.yml", ""),
    ("hosts.yml", "host"),
    ("host_vars/h1/x.yml", ""),
)
"""Where a variable can be written, weakest first."""

KINDS = {
    "text": lambda n: f'"level {n}"',
    "number": lambda n: str(n),
    "switch": lambda n: "true" if n % 2 else "false",
    "nothing": lambda n: "null" if n % 2 else "[]",
    "table": lambda n: f"{{level: {n}, deep: true}}",
    "template": lambda n: f'"{{{{ engine_number + {n} }}}}"',
}


def layered() -> dict[str, str]:
    """For each kind and level n: a variable written at levels 0..n, so that level n must win."""
    level_lines: list[list[str]] = [[] for _ in LEVELS]
    for top in range(len(LEVELS)):
        for kind, make in KINDS.items():
            for level in range(top + 1):
                level_lines[level].append(f"engine_{kind}{top}: {make(level)}")
    level_lines[0].append("engine_number: 7")

    def block(level: int, indent: int) -> str:
        return "".join(" " * indent + line + "\n" for line in level_lines[level])

    inventory = (
        "all:\n  vars:\n" + block(0, 4)
        + "  children:\n    parent:\n      vars:\n" + block(1, 8)
        + "      children:\n        child:\n          vars:\n" + block(2, 12)
        + "          hosts:\n            h1:\n" + block(8, 14)
    )  # fmt: skip
    files = {"hosts.yml": inventory}
    for level, (name, _) in enumerate(LEVELS):
        if name != "hosts.yml":
            files[name] = block(level, 0)
    return files


def ansible_inventory(inventory: Path, host: str) -> dict[str, object]:
    command = [str(Path(sys.executable).parent / "ansible-inventory"), "-i", str(inventory), "--host", host]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_values_are_ansibles_at_every_level(tmp_path: Path) -> None:
    root = write(tmp_path, layered())
    found = fleet.load(root / "hosts.yml").one("h1")
    expected = ansible_inventory(root / "hosts.yml", "h1")
    templates = {name for name in expected if name.startswith("engine_template")}
    assert {n: v for n, v in found.variables.items() if n not in templates} == {
        n: v for n, v in expected.items() if n not in templates
    }
    assert {n: found.variables[n] for n in templates} == {f"engine_template{n}": 7 + n for n in range(10)}


def test_origins_name_the_winning_line(tmp_path: Path) -> None:
    root = write(tmp_path, layered())
    found = fleet.load(root / "hosts.yml").one("h1")
    for top, (name, _) in enumerate(LEVELS):
        for kind, make in KINDS.items():
            origin = found.origins[f"engine_{kind}{top}"]
            assert Path(origin.source) == root / name, (kind, top)
            assert origin.line is not None
            line = (root / name).read_text().splitlines()[origin.line - 1]
            assert line.strip() == f"engine_{kind}{top}: {make(top)}"


def test_origins_reach_into_mappings(tmp_path: Path) -> None:
    text = "engine_profiles:\n  fast:\n    engine_page_size: 2\n    engine_enable_metrics: false\n"
    root = write(tmp_path, {"f.yml": "all: {hosts: {h1: }}\n", "group_vars/all.yml": text})
    origins = fleet.load(root / "f.yml").one("h1").origins
    assert origins["engine_profiles.fast.engine_page_size"].line == 3
    assert origins["engine_profiles.fast.engine_enable_metrics"].line == 4


def test_origins_are_found_through_a_symbolic_link(tmp_path: Path) -> None:
    text = "engine_enable_metrics: false\nengine_port: 1\n"
    write(tmp_path, {"real/f.yml": "all: {hosts: {h1: }}\n", "real/group_vars/all.yml": text})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    origins = fleet.load(tmp_path / "link" / "f.yml").one("h1").origins
    assert str(origins["engine_enable_metrics"]) == f"{tmp_path}/link/group_vars/all.yml:1"
    assert str(origins["engine_port"]) == f"{tmp_path}/link/group_vars/all.yml:2"


def test_templates_see_magic_variables_and_unused_ones_are_left_alone(tmp_path: Path) -> None:
    text = (
        'engine_service: "{{ inventory_hostname }}-a"\nother: "{{ only_in_a_play }}"\n'
        'ansible_become: "{{ engine_service != 0 }}"\nkdops_lease: "{{ 6 * 7 }}"\n'
    )
    root = write(tmp_path, {"f.yml": "all: {hosts: {h1: }}\n", "group_vars/all.yml": text})
    found = fleet.load(root / "f.yml").one("h1")
    assert found.service == "h1-a"
    assert found.variables["other"] == "{{ only_in_a_play }}"
    assert (found.variables["ansible_become"], found.variables["kdops_lease"]) == (True, 42)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("all: {hosts: {h1: {engine_port: [}}\n", "f.yml:1"),
        ("all:\n\thosts: {}\n", "f.yml:2"),
        ('all: {hosts: {h1: {engine_port: "{{ nowhere }}"}}}\n', "nowhere"),
        ('all: {hosts: {h1: {engine_port: "{{ 1 + }}"}}}\n', "f.yml:1"),
        ("all: {}\n", "no hosts"),
        ("", "no hosts"),
        ("[1, 2]\n", "f.yml"),
        ("\x00\x01\x02", "f.yml"),
    ],
)
def test_unusable_files_are_told_with_their_place(tmp_path: Path, text: str, said: str) -> None:
    root = write(tmp_path, {"f.yml": text})
    with pytest.raises(UsageError) as caught:
        fleet.load(root / "f.yml")
    words = " ".join([caught.value.title, caught.value.cause, *caught.value.evidence])
    assert said in words


@pytest.mark.parametrize(
    ("broken", "text", "said"),
    [
        ("f.yml", "all:\n  hosts:\n    h1:\n      engine_tp: [8\n", "f.yml:4: while parsing a flow sequence"),
        ("f.yml", "all\n  hosts:\n    h1: {}\n", "f.yml:2: mapping values are not allowed here"),
        ("f.yml", "all:\n  hosts:\n    h1:\n      engine_model: 'a\n", "f.yml:4: while scanning a quoted"),
        ("group_vars/all.yml", "a: 4\nengine_tp: [8\n", "group_vars/all.yml:2: while parsing a flow"),
    ],
)
def test_broken_yaml_is_told_once_with_its_line(tmp_path: Path, broken: str, text: str, said: str) -> None:
    root = write(tmp_path, {"f.yml": "all: {hosts: {h1: {}}}\n", broken: text})
    with pytest.raises(UsageError) as caught:
        fleet.load(root / "f.yml")
    error = caught.value
    assert error.cause.startswith(f"{root}/{said}")
    assert error.title == f"inventory {root / 'f.yml'} cannot be read"
    assert error.remedy == f"correct {error.cause.split(': ')[0]}"
    assert error.evidence == ()


def test_an_ini_inventory_without_a_suffix_is_no_broken_yaml(tmp_path: Path) -> None:
    root = write(tmp_path, {"hosts": "[all]\nh1 ansible_host=192.0.2.1\n"})
    assert fleet.load(root / "hosts").one("h1").ssh.address == "192.0.2.1"


def test_broken_encoding_is_told(tmp_path: Path) -> None:
    (tmp_path / "f.yml").write_bytes(b"all: {hosts: {h1: {x: \xff\xfe}}}\n")
    with pytest.raises(UsageError, match=r"f\.yml"):
        fleet.load(tmp_path / "f.yml")


def test_ansible_prints_nothing_and_its_warnings_are_kept(tmp_path: Path) -> None:
    root = write(tmp_path, {"f.yml": "all: {hosts: {h1: }, vras: {a: 1}}\n"})
    code = (
        "from pathlib import Path; from kdops import fleet;"
        f"print(len(fleet.load(Path({str(root / 'f.yml')!r})).warnings))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (result.stdout, result.stderr) == ("1\n", "")
    assert "vras" in fleet.load(root / "f.yml").warnings[0]


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KDOPS_CACHE", str(tmp_path / "cache"))
    return write(tmp_path / "inv", {"f.yml": "all: {hosts: {h1: {engine_port: 1}}}\n"}) / "f.yml"


def entries() -> list[Path]:
    return sorted((paths.cache() / "inventory").glob("*.json"))


def test_second_read_needs_no_ansible(cached: Path) -> None:
    fleet.load(cached)
    code = (
        "import sys; from pathlib import Path; from kdops import fleet;"
        f"fleet.load(Path({str(cached)!r})); print('ansible' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


def test_cache_is_private_and_survives_damage(cached: Path) -> None:
    first = fleet.load(cached)
    (entry,) = entries()
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600
    entry.write_text('{"hosts": [{}]}')
    assert fleet.load(cached) == first


def test_cache_follows_files_and_environment(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fleet.load(cached).one("h1").variables["engine_port"] == 1
    write(cached.parent, {"host_vars/h1.yml": "engine_port: \"{{ lookup('env', 'KD_T') | int }}\"\n"})
    for value in (2, 3):
        monkeypatch.setenv("KD_T", str(value))
        assert fleet.load(cached).one("h1").variables["engine_port"] == value
    assert len(entries()) == 3


def test_what_files_do_not_determine_is_not_cached(cached: Path) -> None:
    write(
        cached.parent,
        {"value": "5", "host_vars/h1.yml": "engine_port: \"{{ lookup('file', src) | int }}\"\n"},
    )
    write(cached.parent, {"group_vars/all.yml": f"src: {cached.parent / 'value'}\n"})
    assert fleet.load(cached).one("h1").variables["engine_port"] == 5
    (cached.parent / "value").write_text("6")
    assert fleet.load(cached).one("h1").variables["engine_port"] == 6
    assert entries() == []


def test_read_only_cache_folder_is_no_error(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDOPS_CACHE", os.devnull)
    assert fleet.load(cached).one("h1").variables["engine_port"] == 1
