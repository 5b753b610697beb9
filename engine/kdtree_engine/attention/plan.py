"""How one call is cut into programs: rows per block, tokens per tile, splits over the context.

A plan is fixed when a CUDA graph is captured and serves every context up to `max_context`:
the kernel divides the tiles that a request really has over the plan's splits, so a short
context leaves splits idle, which the merge does not read.
"""

from __future__ import annotations

from dataclasses import dataclass

from kdtree_engine.attention.devices import Device
from kdtree_engine.attention.shapes import MAX_TREE_ROWS, AttentionShape, CacheType
from kdtree_engine.attention.tiles import HOPPER_TILES, Tiles, portable_tiles

MAX_SPLITS = 512


@dataclass(frozen=True)
class Costs:
    """Fitted on an H200 (engine/benchmarks/notes.md), in units of the time one program takes for one tile.

    `start`: what a split costs before and after its tiles; `partial`: storing and merging one partial
    result; `saturating`: the share of the multiprocessors that already saturates memory.
    """

    start: float
    partial: float
    saturating: float


QUICK_TILES = Costs(2.0, 0.045, 0.87)
# Tiles of a latent take the portable kernel twice as long, and never saturate memory.
SLOW_TILES = Costs(1.3, 0.02, 1.0)


@dataclass(frozen=True)
class Plan:
    """Launch geometry of one graph bucket. `rows` counts tree nodes of one request, root included."""

    shape: AttentionShape
    batch: int
    rows: int
    max_context: int
    tiles: Tiles
    splits: int
    overlap: bool  # launch the merge while the last programs of the split kernel store their results
    early: bool  # launch the split kernel while the kernel before it ends
    hopper: bool = False  # the sm_90 kernel instead of the portable one

    @property
    def row_blocks(self) -> int:
        return _up(self.rows * self.shape.group, self.tiles.rows)

    @property
    def mask_words(self) -> int:
        """32-bit words of one row of the tree mask."""
        return _up(self.rows, 32)


def _up(value: int, unit: int) -> int:
    return -(-value // unit)


def choose_splits(
    tiles: int, readers: int, row_blocks: int, programs_at_once: int, costs: Costs = QUICK_TILES
) -> int:
    """Splits with the least modelled time for `readers` (request, KV head) pairs of `tiles` tiles.

    Each reader has `row_blocks` programs a split, which share what they read through the L2. Time is
    the larger of what the programs take in rounds and what memory takes, plus the partial results.
    """
    units = readers * row_blocks
    memory = readers * tiles / (costs.saturating * programs_at_once)
    best, best_cost = 1, max(float(_up(units, programs_at_once) * tiles), memory)
    for wanted in range(2, min(tiles, MAX_SPLITS) + 1):
        each = _up(tiles, wanted)
        if _up(tiles, each) != wanted:  # some splits would have no tile
            continue
        rounds = _up(units * wanted, programs_at_once)
        cost = max(rounds * each, memory) + rounds * costs.start + costs.partial * wanted * units
        if cost < best_cost:
            best, best_cost = wanted, cost
    return best


def suits_hopper(shape: AttentionShape, device: Device) -> bool:
    """Whether the sm_90 kernel computes this shape: MLA with DeepSeek's widths and a bf16 cache."""
    widths = (shape.main_dim, shape.rope_dim) == (512, 64)
    return device.capability == 90 and shape.shared_kv and widths and shape.cache is CacheType.BF16


def make_plan(
    shape: AttentionShape,
    device: Device,
    batch: int,
    rows: int,
    max_context: int,
    portable: Tiles | None = None,
) -> Plan:
    """The plan for `batch` requests of up to `rows` tree nodes and `max_context` cached tokens.

    `portable` asks for the portable kernel with these tiles; otherwise the device's best kernel is
    chosen. ValueError when a count is out of range.
    """
    if batch < 1 or not 1 <= rows <= MAX_TREE_ROWS or max_context < 0:
        raise ValueError(
            f"batch {batch}, rows {rows}, context {max_context}: need >= 1, 1 to {MAX_TREE_ROWS}, >= 0"
        )
    hopper = portable is None and suits_hopper(shape, device)
    tiles = HOPPER_TILES if hopper else portable or portable_tiles(shape, device, rows)
    readers, row_blocks = batch * shape.kv_heads, _up(rows * shape.group, tiles.rows)
    count = _up(max_context, tiles.tokens) + _up(rows, tiles.tokens)
    costs = SLOW_TILES if shape.shared_kv and not hopper else QUICK_TILES
    splits = choose_splits(count, readers, row_blocks, device.multiprocessors * tiles.resident, costs)
    # Measured: an early launch gains where the merge is small, and costs where it fills the card.
    few = 2 * readers * row_blocks * splits <= device.multiprocessors or (
        hopper and readers * row_blocks == 1
    )
    overlap = device.capability >= 90 and splits > 1 and few
    # Measured: costs where the next call's programs share multiprocessors, or squeeze out a large merge.
    early = device.capability >= 90 and batch == 1 and tiles.resident == 1
    return Plan(shape, batch, rows, max_context, tiles, splits, overlap, early, hopper)
