"""The rendered files of the shipped servers, byte for byte, and what systemd says about their units.

After a wanted change: KDOPS_UPDATE_GOLDEN=1 pytest tests/unit/test_render_golden.py, then read the diff.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kdops import fleet
from kdops.fleet.profiles import BUILT_IN
from kdops.render import FileSet, render

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parent.parent / "golden"
INVENTORIES = Path(__file__).parents[2] / "inventories"
ENGINE, LOCK = "e" * 64, "a" * 64
CASES = [(host, profile) for host in ("ct200", "b300") for profile in BUILT_IN]
EXPOSURE_CEILING = 40
"""`systemd-analyze security` in tenths: 0 is closed, 100 open. CUDA forbids closing devices and W^X."""


def release(host: str, profile: str, **changes: object) -> FileSet:
    found = fleet.load(INVENTORIES).one(host)
    return render(fleet.engine_config(found, profile, changes), found, ENGINE, LOCK)


@pytest.mark.parametrize(("host", "profile"), CASES)
def test_files_are_as_recorded(host: str, profile: str) -> None:
    folder = GOLDEN / host / profile
    files = {file.path: file.content.decode() for file in release(host, profile).files}
    if os.environ.get("KDOPS_UPDATE_GOLDEN"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    assert files == {path.name: path.read_text() for path in folder.iterdir()}


def unit_root(folder: Path, files: FileSet) -> tuple[Path, str]:
    """Return a root folder with systemd's own units, ours and our interpreter; and the unit's name."""
    shutil.copytree("/lib/systemd/system", folder / "lib/systemd/system", symlinks=True)
    unit = files.files[0]
    (folder / "etc/systemd/system").mkdir(parents=True)
    (folder / "etc/systemd/system" / unit.path).write_bytes(unit.content)
    guard = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
    (folder / "etc/systemd/system/kdops-guard.service").write_text(guard)
    for program in (f"opt/kdops/venvs/{LOCK[:12]}/bin/python", "bin/true"):
        (folder / program).parent.mkdir(parents=True)
        (folder / program).write_text("#!/bin/sh\n")
        (folder / program).chmod(0o755)
    return folder, unit.path


def verify(root: Path, unit: str) -> list[str]:
    """Return what `systemd-analyze verify` says about `unit` itself."""
    command = ["systemd-analyze", "verify", "--man=no", f"--root={root}", unit]
    result = subprocess.run(command, capture_output=True, text=True)
    return [line for line in (result.stdout + result.stderr).splitlines() if unit in line]


@pytest.mark.parametrize(("host", "profile"), CASES)
def test_systemd_finds_nothing_to_say(tmp_path: Path, host: str, profile: str) -> None:
    assert verify(*unit_root(tmp_path, release(host, profile))) == []


def test_systemd_would_say_something(tmp_path: Path) -> None:
    root, unit = unit_root(tmp_path, release("ct200", "linear"))
    path = root / "etc/systemd/system" / unit
    path.write_text(path.read_text().replace("KillMode=mixed", "KillMode=mixde\nNoSuchKey=1"))
    said = " ".join(verify(root, unit))
    assert ":26: Failed to parse" in said
    assert "NoSuchKey" in said
    (root / f"opt/kdops/venvs/{LOCK[:12]}/bin/python").unlink()
    assert "python" in " ".join(verify(root, unit))


@pytest.mark.parametrize("changes", [{}, {"api_key_file": "/k"}])
def test_exposure_stays_below_the_ceiling(tmp_path: Path, changes: dict[str, object]) -> None:
    root, unit = unit_root(tmp_path, release("ct200", "ddtree", **changes))
    assert verify(root, unit) == []
    limit = f"--threshold={EXPOSURE_CEILING}"
    command = ["systemd-analyze", "security", "--offline=yes", f"--root={root}", limit, unit]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-200:]


def test_every_process_and_hash_seed_gives_the_same_bytes() -> None:
    code = (
        "import hashlib; from pathlib import Path; from kdops import fleet; from kdops.render import render;"
        f"h = fleet.load(Path({str(INVENTORIES)!r})).one('b300');"
        "s = {'environment': {'B': '1', 'A': '2'}, 'extra_args': {'nccl-port': 1, 'max-queued-requests': 2}};"
        "f = render(fleet.engine_config(h, 'ddtree', s), h, 'e' * 64, 'a' * 64);"
        "print(f.release_id, hashlib.sha256(repr(f).encode()).hexdigest())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(seen) == 1


def test_release_id_follows_the_content_alone() -> None:
    found = fleet.load(INVENTORIES).one("ct200")
    config = fleet.engine_config(found, "linear")
    base = render(config, found, ENGINE, LOCK)
    assert re.fullmatch(r"linear-[0-9a-f]{10}", base.release_id)
    assert render(config, found, ENGINE, LOCK) == base
    others = [
        render(config, found, "f" * 64, LOCK),
        render(config, found, ENGINE, "b" * 64),
        release("ct200", "linear", port=30001),
        release("ct200", "linear", environment={"HF_TOKEN": "x"}),
        release("ct200", "linear", environment={"HF_TOKEN": "y"}),
    ]
    assert len({base.release_id, *(other.release_id for other in others)}) == 6


def test_manifest_covers_every_other_file() -> None:
    files = release("ct200", "ddtree")
    manifest = json.loads(files.files[-1].content)
    assert files.files[-1].path == "manifest.json"
    assert manifest == files.manifest
    assert set(manifest["files"]) == {file.path for file in files.files[:-1]}
    assert manifest["release_id"] == files.release_id
    assert (manifest["unit"], manifest["service"]) == ("kdtree-ct200.service", "ct200")
    assert (manifest["engine_digest"], manifest["lock_digest"]) == (ENGINE, LOCK)
    assert manifest["settings"]["tree_budget"] == 32
