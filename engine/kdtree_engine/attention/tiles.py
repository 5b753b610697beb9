"""Tile sizes of the portable kernel, by architecture and layer shape.

The sm_90 row was tuned on an H200. sm_103 and sm_120 were chosen by compiling ahead (shared memory and
spills, see the compile tests), sm_120's latent tiles also by timing those that fit it on the H200.
"""

from __future__ import annotations

from dataclasses import dataclass

from kdtree_engine.attention.devices import Device
from kdtree_engine.attention.shapes import AttentionShape, CacheType


@dataclass(frozen=True)
class Tiles:
    """`rows` x `tokens` is one tile; `resident` programs fit on a multiprocessor at once."""

    rows: int
    tokens: int
    warps: int
    stages: int
    resident: int = 1


# 64 rows of queries (72 KiB) and two tiles of 72 KiB fill the shared memory of a multiprocessor.
HOPPER_TILES = Tiles(64, 64, 8, 2)


def portable_tiles(shape: AttentionShape, device: Device, rows: int) -> Tiles:
    """Tiles for `rows` tree nodes of one request."""
    folded = rows * shape.group
    if shape.cache is CacheType.FP32:
        return Tiles(16, 16, 4, 1)
    if device.capability >= 120:
        if shape.shared_kv:
            return Tiles(16, 32, 8 if shape.cache is CacheType.FP8_E4M3 else 4, 3)
        return Tiles(32 if folded > 16 else 16, 32, 4, 3)
    if device.capability >= 100 and (shape.shared_kv or shape.main_dim == 256):
        few = folded <= 16 or shape.cache is CacheType.FP8_E4M3
        return Tiles(16 if few else 32 if shape.shared_kv else 64, 32, 8, 3)
    if shape.shared_kv:
        return Tiles(64, 64, 8, 2) if folded > 16 else Tiles(16, 32, 4, 3, resident=2)
    return Tiles(64 if folded > 16 else 16, 64, 4, 3, resident=2 if shape.main_dim < 256 else 1)
