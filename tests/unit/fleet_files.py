"""Small inventories for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kdops import fleet
from kdops.fleet import Host

GPU_HOST = """\
all:
  hosts:
    box:
      gpu: h200-sxm
      gpu_count: 8
      engine_model: org/model
      engine_draft_model: org/draft
      engine_attention_backend: triton
      engine_cuda_graph_decode: full
"""


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write `files` (relative path → text) below `folder` and return it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def host(folder: Path, extra: str = "", group_vars: str = "") -> Host:
    """Return the host `box` of an inventory with `extra` lines (YAML, unindented) among its variables."""
    lines = "".join(f"      {line}\n" for line in extra.splitlines())
    write(folder, {"fleet.yml": GPU_HOST + lines, "group_vars/all.yml": group_vars or "{}\n"})
    return fleet.load(folder / "fleet.yml").one("box")
