"""Is there room for the release, and for its environment if that must be built?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from kdops.guard.checks.ask import Question
from kdops.guard.checks.row import Row, State
from kdops.guard.context import Context

_REMEDY = "free space: `kdops prune HOST` shows what kdops can delete"


def rows(ctx: Context, asked: Question) -> Iterator[Row]:
    venv = ctx.layout.venvs / asked.venv
    wanted = {existing(ctx.layout.releases): asked.bytes}
    if not os.access(venv / "bin" / "python", os.X_OK):
        folder = existing(ctx.layout.venvs)
        same = next((f for f in wanted if f.stat().st_dev == folder.stat().st_dev), folder)
        wanted[same] = wanted.get(same, 0) + asked.venv_bytes
    for folder, size in wanted.items():
        free = shutil.disk_usage(folder).free
        if free < size:
            text = f"about {size / 1e6:.1f} MB are needed under {folder}, {free / 1e6:.1f} MB are free"
            yield Row("disk", State.FAIL, text, _REMEDY, "the disk is too full")
        else:
            yield Row(
                "disk", State.OK, f"{free / 1e9:.1f} GB free under {folder}, {size / 1e9:.1f} GB needed"
            )


def existing(folder: Path) -> Path:
    """Return `folder` or the nearest one above it that is there."""
    return next(p for p in (folder, *folder.parents) if p.exists())
