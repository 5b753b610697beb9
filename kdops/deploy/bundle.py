"""Everything a playbook run needs on the operator's side, as one folder."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdops import locks
from kdops.deploy import key_file
from kdops.deploy.engine import engine_digest, site_files
from kdops.deploy.pack import archive, guard_pyz
from kdops.fleet import EngineConfig, Host
from kdops.render import FileSet, render

_HEADROOM = 8 * 1024 * 1024
# Bytes of installed packages, measured with SGLang 0.5.23: what a lock names beyond these is small.
_LARGE = {"torch": 2_000_000_000, "triton": 1_000_000_000, "sglang-kernel": 1_500_000_000}
_NVIDIA, _USUAL = 200_000_000, 15_000_000


@dataclass(frozen=True)
class Bundle:
    """A release and how it travels. `files` is None for a rollback: the release is on the host already."""

    release: str
    unit: str
    service: str
    files: FileSet | None
    lock: Path | None
    api_key: Path | None


def build(config: EngineConfig, host: Host) -> Bundle:
    """Render the release of `config`. Raises UsageError for values or a key file that cannot be used."""
    lock = locks.lock_file(config.lock)
    files = render(config, host, engine_digest(), locks.lock_digest(lock))
    key = key_file.usable(config.api_key_file) if config.api_key_file else None
    return Bundle(files.release_id, str(files.manifest["unit"]), config.service, files, lock, key)


def write(bundle: Bundle, folder: Path, request: Mapping[str, Any]) -> None:
    """Write guard, release archive, request and facts to `folder` (private: created 0700)."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "kdops_guard.pyz").write_bytes(guard_pyz())
    (folder / "request.json").write_text(json.dumps(dict(request)))
    facts: dict[str, Any] = {
        "id": request["id"],
        "release": bundle.release,
        "service": bundle.service,
        "unit": bundle.unit,
    }
    if bundle.files is not None:
        (folder / "bundle.zip").write_bytes(archive(_contents(bundle.files)))
        for file in bundle.files.files:
            (folder / file.path).write_bytes(file.content)
        facts["need"], facts["venv_need"] = needs(bundle)
        facts["user"] = bundle.files.manifest["settings"]["user"]
        facts |= {"lock": str(bundle.lock), "venv": str(bundle.files.manifest["lock_digest"])[:12]}
    facts["api_key"] = str(bundle.api_key) if bundle.api_key else ""
    (folder / "facts.json").write_text(json.dumps(facts))


def needs(bundle: Bundle) -> tuple[int, int]:
    """Return the bytes that the upload takes on the host's disk, and about those of a missing environment."""
    contents = _contents(bundle.files) if bundle.files else {}
    unpacked = sum(len(body) for body, _ in contents.values())
    packed = len(archive(contents)) if contents else 0
    venv = environment_bytes(bundle.lock.read_text()) if bundle.lock else 0
    return packed + unpacked + _HEADROOM, venv


def environment_bytes(lock: str) -> int:
    """Estimate the disk space of the environment that a lock's text names: a floor for the host's check."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)
    return sum(_LARGE.get(pin, _NVIDIA if pin.startswith("nvidia-") else _USUAL) for pin in pins)


def _contents(files: FileSet) -> dict[str, tuple[bytes, int]]:
    rendered = {file.path: (file.content, file.mode) for file in files.files}
    return {**rendered, **{f"site/{path}": (body, 0o644) for path, body in site_files().items()}}
