"""The engine's own Python code as release content: package and dist-info, so that SGLang finds its plugin."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

from kdops import paths
from kdops.errors import KdopsError
from kdops.guard.release import read_tree, tree_digest


def source() -> Path:
    """Return the folder with kdtree-engine's sources: `engine/` in a checkout, package data in a wheel."""
    return paths.data("engine")


def site_files() -> dict[str, bytes]:
    """Return path → content of the release's site/ folder. The same sources give the same bytes.

    kdtree-engine is pure Python, so its installed form is the package plus a `dist-info` folder (PyPA,
    "Recording installed projects") with name, version and entry points. Raises KdopsError when the sources
    are not there.
    """
    folder = source()
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        raise KdopsError(
            "kdtree-engine is not in this installation",
            cause=f"{folder}/pyproject.toml: {type(error).__name__}: {error}",
            remedy="install kdops again, or run it from a complete checkout",
        ) from error
    info = f"kdtree_engine-{project['version']}.dist-info"
    package = {f"kdtree_engine/{path}": body for path, body in read_tree(folder / "kdtree_engine").items()}
    return {
        **package,
        **_library("sdnotify"),
        f"{info}/METADATA": _metadata(project["name"], project["version"]),
        f"{info}/entry_points.txt": _entry_points(project.get("entry-points", {})),
    }


def _library(name: str) -> dict[str, bytes]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise KdopsError(
            f"{name} is not in this installation",
            cause=f"the Python package {name} cannot be found",
            remedy="install kdops again with its dependencies",
        )
    return {f"{name}/{path}": body for path, body in read_tree(Path(spec.origin).parent).items()}


def engine_digest() -> str:
    """Return the sha256 (hex) that names the engine's code in manifests and release ids."""
    return tree_digest(site_files())


def _metadata(name: str, version: str) -> bytes:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()


def _entry_points(groups: dict[str, dict[str, str]]) -> bytes:
    lines = []
    for group, entries in sorted(groups.items()):
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in sorted(entries.items())), ""]
    return "\n".join(lines).encode()
