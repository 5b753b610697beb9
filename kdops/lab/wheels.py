"""Download the wheels of the CPU engine environment, to install it where there is no network."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kdops.errors import KdopsError
from kdops.lab.command import Command, attempt, contained, run
from kdops.locks import lock_digest

SUPPORT = "kdtree-cpu-support"


def fetch(lock: Path, support_source: Path, python_version: str, wheels: Path, scratch: Path) -> Path:
    """Return a folder with a wheel for every pin of the lock, downloaded into `wheels`/<lock digest> if
    missing.

    The wheel of `support_source` is built each time (it is ours and small). python_version is the target's,
    "3.11". Raises KdopsError with pip's last lines if a wheel cannot be had.
    """
    folder = wheels / lock_digest(lock)
    pip = [*_pip(), "--disable-pip-version-check", "--quiet"]
    env = {"TMPDIR": str(scratch)}
    if not folder.is_dir():
        pins = scratch / "pins.txt"  # ours must never be looked for on an index
        public = [line for line in lock.read_text().splitlines() if not line.startswith(f"{SUPPORT}==")]
        pins.write_text("\n".join(public) + "\n")
        partial = scratch / "wheels"
        target: Command = ["--only-binary=:all:", "--python-version", python_version, "--dest", partial]
        what = "downloading the engine's wheels"
        run(*contained(*pip, "download", *target, "--no-deps", "-r", pins), what=what, env=env)
        if not any(partial.glob("torch-*+cpu-*.whl")):  # another build of torch brings libraries of its own
            torch = next(line for line in public if line.startswith("torch=="))
            run(*contained(*pip, "download", *target, "-c", pins, torch), what=what, env=env)
        wheels.mkdir(parents=True, exist_ok=True)
        partial.rename(folder)
    source = scratch / "cpu_support"  # a copy: building leaves files in the source folder
    shutil.copytree(support_source, source)
    for old in folder.glob("kdtree_cpu_support-*.whl"):
        old.unlink()
    build = contained(*pip, "wheel", "--no-deps", "--wheel-dir", folder, source)
    run(*build, what="building the CPU stand-ins' wheel", env=env)
    return folder


def _pip() -> list[str]:
    for command in ([sys.executable, "-m", "pip"], ["python3", "-m", "pip"]):
        if attempt(*command, "--version").returncode == 0:
            return command
    raise KdopsError(
        "the lab needs pip to download the engine's wheels",
        cause="neither this Python nor python3 has it",
        remedy="apt-get install python3-pip",
    )
