"""Deterministic archives: the guard as a zipapp, a release as one bundle."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import kdops
from kdops.guard.release import read_tree

_SHARED = ("__init__.py", "errors.py", "throttle.py")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_MAIN = b"from kdops.guard.main import main\n\nraise SystemExit(main())\n"


def archive(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Return a zip of path → (content, mode); the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for path in sorted(files):
            content, mode = files[path]
            info = zipfile.ZipInfo(path, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100000 | mode) << 16
            zipped.writestr(info, content)
    return buffer.getvalue()


def guard_pyz() -> bytes:
    """Return `kdops_guard.pyz`: kdops.guard and the modules it needs, run by any python3 from 3.11 on."""
    package = Path(kdops.__file__).parent
    files = {f"kdops/guard/{path}": body for path, body in read_tree(package / "guard").items()}
    files |= {f"kdops/{name}": (package / name).read_bytes() for name in _SHARED}
    return archive({"__main__.py": (_MAIN, 0o644), **{path: (body, 0o644) for path, body in files.items()}})
