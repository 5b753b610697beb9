"""What may be deleted: releases and environments that no committed release names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from kdops.errors import ExitCode, KdopsError
from kdops.guard import release
from kdops.guard.context import Context


def prune(ctx: Context, *, delete: bool) -> dict[str, Any]:
    """Return path and bytes of everything unreferenced, deleted if asked. Raises KdopsError (4) during a
    deploy.
    """
    state = ctx.store.load()
    if delete and state.transaction is not None:
        raise KdopsError(
            "a deploy is open on this host",
            cause=f"{state.transaction.who} deploys {state.transaction.release}",
            remedy="prune when it has ended",
            code=ExitCode.LOCKED,
        )
    kept = {c.release for c in state.committed}
    venvs = {c.venv for c in state.committed}
    items = [*_unnamed(ctx.layout.releases, kept), *_unnamed(ctx.layout.venvs, venvs)]
    listing = [{"path": str(path), "bytes": release.size(path)} for path in items]
    if delete:
        for path in items:
            shutil.rmtree(path)
    total = sum(int(str(item["bytes"])) for item in listing)
    return {"deleted": delete, "bytes": total, "items": listing, "kept": sorted(kept)}


def _unnamed(folder: Path, names: set[str]) -> list[Path]:
    return (
        sorted(p for p in folder.iterdir() if p.name not in names and p.is_dir()) if folder.is_dir() else []
    )
