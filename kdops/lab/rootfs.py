"""The root file system that lab hosts share: Debian, the engine's environment, the tiny pair. Built once."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from kdops.errors import KdopsError
from kdops.guard.layout import ON_HOST
from kdops.lab import sources, wheels
from kdops.lab.command import FILES, Command, contained, run
from kdops.lab.locking import locked
from kdops.lab.names import Lab
from kdops.locks import lock_digest, lock_file

Say = Callable[[str], None]

PACKAGES = (
    "systemd systemd-sysv libpam-systemd dbus openssh-server "
    "python3 python3-venv iproute2 procps curl ca-certificates"
)
_NO_DOCUMENTATION = [
    f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("man", "doc", "locale", "info")
]
_CHECKOUT = Path(__file__).parent.parent.parent
_SUPPORT = _CHECKOUT / "engine" / "cpu_support"
_MODELS = _CHECKOUT / "models" / "tiny-pair"
_BUILD_VENV = _CHECKOUT / "playbooks" / "files" / "build_venv.sh"
_SCRIPTS = (FILES / "rootfs.sh", FILES / "init.sh")


def ensure(lab: Lab, say: Say) -> Path:
    """Return the root file system for this checkout, building it if the cache lacks it; note it as used by
    the lab.

    Killing a build leaves only a folder that the next call removes. Older roots that no lab uses are removed.
    Raises KdopsError if a step of the build fails, or outside a checkout.
    """
    _require_checkout()
    release, apt_sources = sources.release_sources()
    root = lab.cache / "lab" / f"root-{_digest(release)}"
    with locked(
        _lock_path(lab.cache), lambda: say("another kdops is building the lab's root file system; waiting")
    ):
        _sweep(lab.cache)
        if not root.is_dir():
            _build(lab.cache, root, release, apt_sources, say)
        lab.folder.mkdir(parents=True, exist_ok=True)
        (lab.folder / "root.path").write_text(str(root))
        _drop_unused(lab.cache)
    return root


def sweep(cache: Path) -> None:
    """Remove what a killed build left; a running build (its lock stays held for 5 s) is left alone."""
    deadline = time.monotonic() + 5
    while any((cache / "lab").glob("root-*.tmp")) and time.monotonic() < deadline:
        with locked(_lock_path(cache), None) as mine:
            if mine is not None:
                _sweep(cache)
        time.sleep(0.05)


def _lock_path(cache: Path) -> Path:
    return cache / "lab" / "root.lock"


def _sweep(cache: Path) -> None:
    for partial in (cache / "lab").glob("root-*.tmp"):
        shutil.rmtree(partial)


def _drop_unused(cache: Path) -> None:
    used = {Path(note.read_text()) for note in (cache / "lab").glob("*/root.path")}
    for root in set((cache / "lab").glob("root-*")) - used:
        if root.is_dir():
            doomed = root.with_suffix(".tmp")
            root.rename(doomed)
            shutil.rmtree(doomed)


def _require_checkout() -> None:
    missing = [path for path in (_SUPPORT, _MODELS, _BUILD_VENV) if not path.exists()]
    if missing:
        raise KdopsError(
            "the lab needs a checkout of kdops",
            cause=f"it builds hosts from parts that the installed package lacks, among them {missing[0]}",
            remedy="clone the repository and run `make demo` there",
        )


def _digest(release: str) -> str:
    digest = hashlib.sha256(f"{release} {PACKAGES}".encode())
    for file in [*_SCRIPTS, _BUILD_VENV, lock_file("cpu"), *_files(_SUPPORT), *_files(_MODELS)]:
        digest.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
    return digest.hexdigest()[:12]


def _files(folder: Path) -> Iterable[Path]:
    """The folder's own files: what tools leave there (__pycache__, .mypy_cache) changes no root."""
    made = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(p for p in made if not any(part[0] in "._" for part in p.relative_to(folder).parts[:-1]))


def _build(cache: Path, root: Path, release: str, apt_sources: Iterable[Path], say: Say) -> None:
    work = root.with_suffix(".tmp")
    tree, scratch, lock = work / "root", work / "scratch", lock_file("cpu")
    scratch.mkdir(parents=True)
    env = {"TMPDIR": str(scratch)}
    started = time.monotonic()
    say(f"building the lab's root file system, once (minutes): {root}")
    languages = '--aptopt=Acquire::Languages "none"'
    options = [
        "--quiet",
        "--mode=root",
        "--variant=apt",
        f"--include={','.join(PACKAGES.split())}",
        languages,
    ]
    debootstrap: Command = ["mmdebstrap", *options, *_NO_DOCUMENTATION, release, tree, *apt_sources]
    run(*contained(*debootstrap), what="installing Debian into the lab's root", env=env)
    run(*contained("sh", FILES / "rootfs.sh", tree, FILES / "init.sh"), what="preparing the lab's root")
    say(f"  Debian {release}: {_megabytes(tree)} MB after {time.monotonic() - started:.0f} s")

    version = run(
        "chroot", tree, "python3", "-c", _PRINT_VERSION, what="asking the root's Python version"
    ).strip()
    folder = wheels.fetch(lock, _SUPPORT, version, cache / "wheels", scratch)
    say(f"  wheels: {_megabytes(folder)} MB in {folder} after {time.monotonic() - started:.0f} s")

    target = str(ON_HOST.venvs / lock_digest(lock))
    inside: Command = ["bash", FILES / "chroot.sh", tree, folder, lock, _BUILD_VENV, target]
    run(*contained(*inside, network=False), what="installing the engine's environment", env=env)
    say(f"  engine environment: {_megabytes(tree / target[1:])} MB after {time.monotonic() - started:.0f} s")

    shutil.copytree(_MODELS / "target", tree / "opt/models/tiny-pair/target")
    shutil.copytree(_MODELS / "drafter", tree / "opt/models/tiny-pair/drafter")
    tree.rename(root)
    shutil.rmtree(work)
    say(f"  done: {_megabytes(root)} MB after {time.monotonic() - started:.0f} s")


_PRINT_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"


def _megabytes(folder: Path) -> int:
    used = run("du", "--summarize", "--block-size=1M", folder, what=f"measuring {folder}")
    return int(used.split()[0])
