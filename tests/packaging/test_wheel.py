"""The kdops wheel installed alone, in a clean environment, away from the checkout."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin folder of a fresh environment that holds the wheel and what it asks for."""
    tmp = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp.glob("kdops-*.whl")
    venv.create(tmp / "env", with_pip=True)
    install = [tmp / "env/bin/pip", "install", "-q", "--no-compile", "-c", ROOT / "requirements.lock", wheel]
    subprocess.run(install, check=True, capture_output=True)
    return tmp / "env" / "bin"


def run(installed: Path, tmp_path: Path, *args: str) -> str:
    env = {**os.environ, "KDOPS_CACHE": str(tmp_path / "cache")}
    env.pop("PYTHONPATH", None)
    result = subprocess.run(
        [installed / "kdops", *args], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_config_and_render_use_the_packaged_data(installed: Path, tmp_path: Path) -> None:
    assert "engine_draft_window" in run(installed, tmp_path, "config", "ct200")
    run(installed, tmp_path, "render", "b300", "--profile", "linear", "--out", str(tmp_path / "out"))
    (unit,) = (tmp_path / "out").rglob("kdtree-*.service")
    assert "ExecStart=" in unit.read_text()


def test_what_a_deploy_sends_and_runs_is_packaged(installed: Path, tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    run(installed, tmp_path, "bundle", "ct200", "--out", str(out), "--lease", "60", "--ready-timeout", "60")
    names = set(zipfile.ZipFile(out / "bundle.zip").namelist())
    assert {"launch.yaml", "site/kdtree_engine/serve/__main__.py", "site/sdnotify/__init__.py"} <= names
    guard = [sys.executable, "-I", out / "kdops_guard.pyz", "--help"]
    assert "preflight" in subprocess.run(guard, capture_output=True, text=True, check=True).stdout
    ask = [installed / "python", "-c", "from kdops import paths; print(paths.data('playbooks'))"]
    packaged = Path(
        subprocess.run(ask, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    )
    assert packaged.is_relative_to(installed.parent)
    assert (packaged / "files/build_venv.sh").is_file()
    for playbook in packaged.glob("*.yml"):
        command = [installed / "ansible-playbook", "-i", "ct200,", "--syntax-check", playbook]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_wheel_needs_no_torch(installed: Path) -> None:
    names = subprocess.run(
        [installed / "pip", "list"], capture_output=True, text=True, check=True
    ).stdout.lower()
    assert "ansible-core" in names
    assert "torch" not in names and "sglang" not in names
