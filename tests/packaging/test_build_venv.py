"""build_venv.sh: whole or not at all, once."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path

import pytest

from kdops import paths

pytestmark = pytest.mark.packaging
SCRIPT = paths.data("playbooks") / "files" / "build_venv.sh"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A wheel folder with one tiny distribution, `tiny` 1.0, that has a script."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        info = "tiny-1.0.dist-info"
        wheel.writestr("tiny.py", "def main():\n    print('tiny runs')\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
        wheel.writestr(f"{info}/RECORD", "")
    return folder


def build(lock: Path, target: Path, *wheels: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", str(SCRIPT), lock, target, *wheels], capture_output=True, text=True)


def lock_of(tmp_path: Path, text: str) -> Path:
    lock = tmp_path / "lock.txt"
    lock.write_text(text)
    return lock


def test_it_builds_once_and_its_scripts_run_from_the_final_place(tmp_path: Path, wheels: Path) -> None:
    lock, target = lock_of(tmp_path, "tiny==1.0\n"), tmp_path / "venvs" / "abc"
    stale = target.with_name("abc.partial-999999999")
    stale.mkdir(parents=True)
    first = build(lock, target, wheels)
    assert (first.returncode, first.stdout) == (0, f"built {target}\n"), first.stderr
    assert subprocess.run([target / "bin" / "tiny"], capture_output=True, text=True).stdout == "tiny runs\n"
    assert [path.name for path in target.parent.iterdir()] == ["abc"]
    before = target.stat().st_mtime_ns
    second = build(lock, target, wheels)
    assert (second.returncode, second.stdout) == (0, f"present {target}\n")
    assert target.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("lock", "says"),
    [
        ("tiny==2.0\n", "tiny"),
        ("absent==1.0\n", "absent"),
        ("# python: 2.6\ntiny==1.0\n", "python2.6"),
        ("", "missing or empty"),
    ],
)
def test_a_lock_that_cannot_be_installed_leaves_nothing(
    tmp_path: Path, wheels: Path, lock: str, says: str
) -> None:
    target = tmp_path / "venvs" / "abc"
    refused = build(lock_of(tmp_path, lock), target, wheels)
    assert refused.returncode != 0
    assert says in refused.stderr
    assert not target.parent.exists() or list(target.parent.iterdir()) == []
