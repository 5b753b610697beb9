"""`make clean` and the pruning of environments, on a cache folder with stand-ins for what lies there."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
SCRIPTS = Path(__file__).parents[2] / "scripts"


def venv(cache: Path, name: str, checkout: Path | None, kdops: str = "exit 1") -> Path:
    """An environment whose editable install leads to `checkout`; None: it is still being built."""
    folder = cache / f"dev-{name}"
    packages = folder / "lib/python3.11/site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin/kdops").write_text(f"#!/bin/sh\n{kdops}\n")
    (folder / "bin/kdops").chmod(0o755)
    if checkout:
        (packages / "_kdops.pth").write_text(str(checkout))
        (folder / ".complete").touch()
    return folder


def run(script: str, *arguments: str, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPTS / script, *arguments],
        env={**os.environ, "KDOPS_CACHE": str(cache)},
        capture_output=True,
        text=True,
    )


def test_environments_of_deleted_clones_go_and_no_others(tmp_path: Path) -> None:
    cache, clone = tmp_path / "a cache", tmp_path / "a clone"
    clone.mkdir()
    gone, kept, building = (
        venv(cache, "1", tmp_path / "gone"),
        venv(cache, "2", clone),
        venv(cache, "3", None),
    )
    done = run("prune_venvs.sh", str(cache), cache=cache)
    assert (done.returncode, done.stdout) == (0, "")
    assert str(tmp_path / "gone") in done.stderr
    assert not gone.exists() and kept.exists() and building.exists()


@pytest.mark.parametrize("cache", ["no such folder", "empty"])
def test_nothing_to_prune_is_no_error(tmp_path: Path, cache: str) -> None:
    (tmp_path / "empty").mkdir()
    assert run("prune_venvs.sh", str(tmp_path / cache), cache=tmp_path).returncode == 0


def test_clean_takes_each_lab_down_with_a_kdops_that_works(tmp_path: Path) -> None:
    cache, told = tmp_path / "cache", tmp_path / "told"
    told.touch()
    venv(cache, "1", SCRIPTS)
    venv(cache, "2", SCRIPTS, f'echo "$KDOPS_LAB" "$@" >>{told}')
    for name in ("lab", "test", "root-0123456789ab"):
        (cache / "lab" / name).mkdir(parents=True)
    done = run("clean.sh", cache=cache)
    assert done.returncode == 0, done.stderr
    asked = [line for line in told.read_text().splitlines() if not line.endswith("--version")]
    assert asked == ["lab lab down", "test lab down"]
    assert not cache.exists()


def test_clean_leaves_a_lab_it_cannot_take_down(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    venv(cache, "1", SCRIPTS)
    (cache / "lab" / "test").mkdir(parents=True)
    done = run("clean.sh", cache=cache)
    assert done.returncode == 1
    assert "make setup" in done.stderr
    assert (cache / "lab" / "test").exists()


def test_clean_without_a_lab_needs_no_kdops(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "lab" / "root-0123456789ab").mkdir(parents=True)
    assert run("clean.sh", cache=cache).returncode == 0
    assert not cache.exists()
    assert "nothing to remove" in run("clean.sh", cache=cache).stdout
