"""Can this host take the release? Asked after the lock is taken and before anything is uploaded."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from kdops.guard.context import Context
from kdops.guard.model import State

_SYSTEMD = 247  # LoadCredential=
_HOLDER = re.compile(r'users:\(\("([^"]*)",pid=(\d+)')


def preflight(ctx: Context, manifest: dict[str, Any], need: int, venv_need: int) -> list[dict[str, str]]:
    """Return the problems found, each with title, cause and remedy.

    manifest: of the release to come. need: bytes the upload takes on disk. venv_need: about what the Python
    environment takes, if it must be built.
    """
    state = ctx.store.load()
    found = [
        *_disk(ctx, manifest, need, venv_need),
        *_systemd(),
        *_models(manifest),
        *_port(ctx, state, manifest),
        *_foreign_unit(ctx, manifest),
    ]
    return [dict(zip(("title", "cause", "remedy"), problem, strict=True)) for problem in found]


def _disk(ctx: Context, manifest: dict[str, Any], need: int, venv_need: int) -> list[tuple[str, str, str]]:
    venv = ctx.layout.venvs / str(manifest["lock_digest"])[:12]
    wanted = {_existing(ctx.layout.releases): need}
    if not os.access(venv / "bin" / "python", os.X_OK):
        folder = _existing(ctx.layout.venvs)
        same = next((f for f in wanted if f.stat().st_dev == folder.stat().st_dev), folder)
        wanted[same] = wanted.get(same, 0) + venv_need
    found = []
    for folder, size in wanted.items():
        free = shutil.disk_usage(folder).free
        if free < size:
            cause = f"about {size / 1e6:.1f} MB are needed under {folder}, {free / 1e6:.1f} MB are free"
            remedy = "free space: `kdops prune HOST` shows what kdops can delete"
            found.append(("the disk is too full", cause, remedy))
    return found


def _existing(folder: Path) -> Path:
    return next(p for p in (folder, *folder.parents) if p.exists())


def _systemd() -> list[tuple[str, str, str]]:
    out = subprocess.run(["systemctl", "--version"], check=False, capture_output=True, text=True).stdout
    found = re.match(r"systemd (\d+)", out)
    if found and int(found[1]) >= _SYSTEMD:
        return []
    return [
        ("systemd is too old", f"{out.splitlines()[:1]}; {_SYSTEMD} or newer is needed", "upgrade the host")
    ]


def _models(manifest: dict[str, Any]) -> list[tuple[str, str, str]]:
    found = []
    for path in manifest.get("models", []):
        if path.startswith("/") and not (Path(path) / "config.json").exists():
            cause = f"{path}/config.json does not exist" if Path(path).is_dir() else f"{path} does not exist"
            found.append(
                (
                    "a model is not on the host",
                    cause,
                    "copy it there, or correct engine_model/engine_draft_model",
                )
            )
    return found


def _port(ctx: Context, state: State, manifest: dict[str, Any]) -> list[tuple[str, str, str]]:
    port = int(manifest["port"])
    out = subprocess.run(
        ["ss", "-Hltnp", f"sport = :{port}"], check=False, capture_output=True, text=True, errors="replace"
    ).stdout
    ours = {unit for c in state.committed[-1:] for unit in (c.unit,)}
    ours |= {state.transaction.unit, state.transaction.adopting} if state.transaction else set()
    for name, pid in _HOLDER.findall(out):
        unit = _unit_of(int(pid))
        if unit not in ours:
            cause = f"process {name} (pid {pid}, unit {unit or 'none'}) listens on it"
            return [(f"port {port} is taken", cause, "stop it, or choose another engine_port")]
    return []


def _unit_of(pid: int) -> str:
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return ""
    found = re.findall(r"/([^/\n]+\.(?:service|scope))", groups)
    return found[-1] if found else ""


def _foreign_unit(ctx: Context, manifest: dict[str, Any]) -> list[tuple[str, str, str]]:
    installed = ctx.layout.units / manifest["unit"]
    if not installed.is_file() or ctx.store.load().outcome is not None or ctx.layout.current.is_symlink():
        return []
    cause = f"{installed} exists and kdops did not write it"
    return [
        (
            "a service of that name exists",
            cause,
            "choose another engine_service, or adopt it under another name",
        )
    ]
