"""Releases on disk: unpack what arrived, prove it is whole, put one in place."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdops.errors import ExitCode, KdopsError
from kdops.guard.layout import Layout
from kdops.guard.store import fsync_folder, write_atomic

BUNDLE = "bundle.zip"
_ASIDE = ".aside-"
TRIAL = b"# Written by kdops: during a deploy the first failed start is final.\n[Service]\nRestart=no\n"


def tree_digest(files: dict[str, bytes]) -> str:
    """Return the sha256 (hex) over relative paths and contents, independent of order and time stamps."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path}\0{hashlib.sha256(files[path]).hexdigest()}\n".encode())
    return total.hexdigest()


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return relative path → content of every file below `folder`, compiled Python left out."""
    found = (p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


@dataclass(frozen=True)
class Release:
    """One folder below releases/ and what its manifest says."""

    path: Path
    manifest: dict[str, Any]

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def unit(self) -> str:
        return str(self.manifest["unit"])

    @property
    def service(self) -> str:
        return str(self.manifest["service"])

    @property
    def venv(self) -> str:
        return str(self.manifest["lock_digest"])[:12]

    @property
    def needs_key(self) -> bool:
        return bool(self.manifest.get("settings", {}).get("api_key_file"))

    def damage(self) -> list[str]:
        """Return what differs from the manifest: missing or edited files, an edited engine."""
        found = []
        if self.manifest.get("release_id") != self.id:
            found.append(f"{self.path}/manifest.json is of release {self.manifest.get('release_id')}")
        for name, digest in sorted(self.manifest["files"].items()):
            file = self.path / name
            if not file.is_file():
                found.append(f"{file} is missing")
            elif hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                found.append(f"{file} was edited")
        if tree_digest(read_tree(self.path / "site")) != self.manifest["engine_digest"]:
            found.append(f"{self.path / 'site'} was edited")
        return found


def load(layout: Layout, release: str) -> Release:
    """Raises KdopsError when the release is not on this host or its manifest is unreadable."""
    path = layout.releases / release
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        return Release(path, {**manifest, "unit": manifest["unit"], "service": manifest["service"]})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise KdopsError(
            f"release {release} is not on this host",
            cause=f"{path / 'manifest.json'}: {type(error).__name__}: {error}",
            remedy="deploy it again; `kdops history` lists what this host has",
            code=ExitCode.REFUSED,
        ) from error


def manifest(layout: Layout, release: str) -> dict[str, Any] | None:
    """Return the manifest of a release on this host, None when it is gone or unreadable."""
    try:
        return load(layout, release).manifest
    except KdopsError:
        return None


def present(layout: Layout, release: str) -> bool:
    """Is the release here and whole?"""
    try:
        return not load(layout, release).damage()
    except (KdopsError, KeyError):
        return False


def unpack(layout: Layout, release: str) -> Release:
    """Move the uploaded bundle to releases/<id>, proven whole; a damaged folder of that name is replaced."""
    bundle, folder = layout.partial / BUNDLE, layout.partial / release
    shutil.rmtree(folder, ignore_errors=True)
    try:
        _extract(bundle, folder)
        manifest = json.loads((folder / "manifest.json").read_bytes())
        damage = Release(folder, manifest).damage()
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise _broken_upload(release, f"{type(error).__name__}: {error}") from error
    if damage:
        raise _broken_upload(release, "; ".join(damage))
    target = layout.releases / release
    if target.exists():  # damaged, but an engine may run from it: after a crash `recover` returns it
        target.rename(layout.releases / f"{_ASIDE}{release}")
    folder.rename(target)
    fsync_folder(layout.releases)
    recover(layout)
    shutil.rmtree(layout.partial, ignore_errors=True)
    return load(layout, release)


def recover(layout: Layout) -> None:
    """Return the folders that `unpack` moved aside and could not replace; delete those that it did."""
    for aside in layout.releases.glob(f"{_ASIDE}*"):
        target = layout.releases / aside.name.removeprefix(_ASIDE)
        if target.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(target)


def _broken_upload(release: str, cause: str) -> KdopsError:
    return KdopsError(
        f"release {release} did not arrive whole",
        cause=cause,
        remedy="free disk space on the host if it is full (`kdops prune`), then deploy again",
    )


def _extract(bundle: Path, folder: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        for info in archive.infolist():
            path = Path(info.filename)
            if path.is_absolute() or ".." in path.parts or info.is_dir():
                raise ValueError(f"unexpected entry {info.filename!r}")
            write_atomic(folder / path, archive.read(info), (info.external_attr >> 16) & 0o777 or 0o644)


def install_unit(layout: Layout, release: Release) -> None:
    """Copy (never link) the release's unit, so that systemd reads the same bytes whatever happens to
    releases/.
    """
    write_atomic(layout.units / release.unit, (release.path / release.unit).read_bytes())


def point_current(layout: Layout, release: str | None) -> None:
    """Move `current` atomically; None removes it."""
    if release is None:
        layout.current.unlink(missing_ok=True)
        return
    temporary = layout.current.with_name(".current.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(f"releases/{release}")
    temporary.replace(layout.current)
    fsync_folder(layout.current.parent)


def current(layout: Layout) -> str | None:
    """Return the name that `current` points to, None where it is no link."""
    return layout.current.readlink().name if layout.current.is_symlink() else None


def set_trial(layout: Layout, unit: str) -> None:
    write_atomic(layout.trial(unit), TRIAL)


def clear_trial(layout: Layout, unit: str) -> None:
    layout.trial(unit).unlink(missing_ok=True)


def set_aside(layout: Layout, unit: str) -> list[str]:
    """Move hand-made drop-ins out of the way; they come back if the release does not. Returns their paths."""
    source = layout.dropins(unit)
    if not source.is_dir():
        return []
    names = sorted(str(p) for p in source.iterdir())
    shutil.rmtree(layout.set_aside, ignore_errors=True)
    layout.set_aside.mkdir(parents=True)
    shutil.move(source, layout.set_aside / source.name)
    return names


def bring_back(layout: Layout, unit: str) -> None:
    kept = layout.set_aside / f"{unit}.d"
    if kept.is_dir() and not layout.dropins(unit).exists():
        shutil.move(kept, layout.dropins(unit))


def keep_edits(layout: Layout) -> None:
    """The release stays, so its hand-made drop-ins do not come back: keep the last set for people."""
    if layout.set_aside.is_dir():
        shutil.rmtree(layout.kept_edits, ignore_errors=True)
        layout.set_aside.rename(layout.kept_edits)


def size(folder: Path) -> int:
    """Return the bytes below `folder` (allocated blocks; 0 when it does not exist)."""
    return sum(os.lstat(p).st_blocks * 512 for p in folder.rglob("*")) if folder.is_dir() else 0
