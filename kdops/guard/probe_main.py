"""Runs inside the probe unit, as the service's user, with the engine's sandbox: is everything in reach?

`python probe_main.py DEVICE MODEL...`; DEVICE is cuda, cpu, or none to leave torch alone. Prints one JSON
document. Needs nothing but the standard library, and torch where a device is named.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

CACHES = (
    "HOME",
    "XDG_CACHE_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "HF_HOME",
)


def closed_caches() -> list[str]:
    """Return "folder: why" for each cache that this user cannot write."""
    found = []
    for folder in dict.fromkeys(os.environ[name] for name in CACHES if os.environ.get(name)):
        path = Path(folder)
        nearest = next(p for p in (path, *path.parents) if os.path.lexists(p))
        if not nearest.is_dir():
            found.append(f"{nearest}: no folder")
        elif not os.access(nearest, os.W_OK | os.X_OK):
            found.append(f"{nearest}: not writable")
    return found


def closed_files(models: list[str]) -> list[str]:
    """Return the model files that this user cannot read; what does not exist is another check's to say."""
    found = []
    for folder in map(Path, models):
        try:
            folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass  # a folder above it is closed
        if not os.access(folder, os.R_OK | os.X_OK):
            found.append(str(folder))
            continue
        found += [str(file) for file in sorted(folder.iterdir()) if not os.access(file, os.R_OK)]
    return found


def allocate(device: str) -> dict[str, Any]:
    """Initialise torch on `device` and allocate 1 MiB there."""
    torch: Any = importlib.import_module("torch")
    if device == "cpu":
        torch.ones(1 << 18).sum().item()
        return {"device": "CPU", "torch": torch.__version__}
    torch.cuda.init()  # the caller made the GPU with the most free memory the only visible one
    torch.ones(1 << 18, device="cuda").sum().item()
    return {"device": torch.cuda.get_device_name(0), "torch": torch.__version__}


def main(arguments: list[str]) -> None:
    device, *models = arguments
    report: dict[str, Any] = {"caches": closed_caches(), "files": closed_files(models)}
    if device != "none":
        try:
            report |= allocate(device)
        except Exception as error:
            report["error"] = f"{type(error).__name__}: {error}"[:600]
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1:])
