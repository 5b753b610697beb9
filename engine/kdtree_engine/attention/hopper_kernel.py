"""The split kernel for sm_90 and a bf16 shared latent, in Gluon.

One producer warpgroup gathers latent rows by page table into a ring of shared-memory tiles
(cp.async, since a page may be a single row); two consumer warpgroups share the scores of a tile
and own half of the value width each (the shape of FlashMLA's sm_90 kernel, without its two-tile
schedule). Rows, splits, partial results and merge are those of `split_kernel`.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kdtree_engine.attention.split_kernel import split_range

# Renamed between Triton 3.6 and 3.9.
_copy = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
_barrier = getattr(gl, "barrier", None) or gl.thread_barrier


@gluon.jit
def _lookup(table, tile, n, prefix, PAGE: gl.constexpr, BN: gl.constexpr):
    token = gl.minimum(tile * BN + n, prefix - 1)
    return gl.load(table + gl.maximum(token, 0) // PAGE, mask=token >= 0, other=0)


@gluon.jit
def _produce(
    keys, tree_keys, k_stride, kt_stride, table, first_row, prefix, rows, prefix_tiles, lo, hi,
    kn, kr, full, empty,
    PAGE: gl.constexpr, BN: gl.constexpr, DN: gl.constexpr, DR: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """Fill the ring with tiles lo to hi: the prefix through the page table, then the tree's own keys."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    n = gl.arange(0, BN, layout=gl.SliceLayout(1, layout))
    dn = gl.arange(0, DN, layout=gl.SliceLayout(0, layout))
    dr = gl.arange(0, DR, layout=gl.SliceLayout(0, layout))
    ahead = _lookup(table, lo, n, prefix, PAGE, BN)
    for tile in range(lo, hi):
        turn = tile - lo
        buffer = turn % BUFFERS
        token = gl.minimum(tile * BN + n, prefix - 1)
        slot = ahead.to(gl.int64) * PAGE + token % PAGE
        ahead = _lookup(table, tile + 1, n, prefix, PAGE, BN)
        base = keys
        stride = k_stride
        if tile >= prefix_tiles:
            base = tree_keys
            stride = kt_stride
            slot = (first_row + gl.minimum((tile - prefix_tiles) * BN + n, rows - 1)).to(gl.int64)
        row = base + slot * stride
        mbarrier.wait(empty.index(buffer), (turn // BUFFERS & 1) ^ 1)
        _copy(kr.index(buffer), row[:, None] + DN + dr[None, :])
        _copy(kn.index(buffer), row[:, None] + dn[None, :])
        async_copy.mbarrier_arrive(full.index(buffer), increment_count=False)


@gluon.jit
def _consume(
    query, mask, out, lse_out, part, part_lse, first_row, prefix, rows, prefix_tiles, lo, hi, block, split,
    active, total_rows, scale, qn, qr, kn, kr, p_shared, full, empty,
    HEADS: gl.constexpr, CAUSAL: gl.constexpr, WORDS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    DN: gl.constexpr, DR: gl.constexpr, BUFFERS: gl.constexpr, WITH_LSE: gl.constexpr,
):  # fmt: skip
    """Softmax state and output of one row block over tiles lo to hi, and their store."""
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, BN // 2, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, DN // 2, 16])
    load: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [8, 1], [1, 0])
    q_row = block * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, load))
    q_node = gl.minimum(q_row // HEADS, rows - 1)
    q_base = query + ((first_row + q_node) * HEADS + q_row % HEADS).to(gl.int64) * (DN + DR)
    q_ok = (q_row < rows * HEADS)[:, None]
    dn = gl.arange(0, DN, layout=gl.SliceLayout(0, load))
    dr = gl.arange(0, DR, layout=gl.SliceLayout(0, load))
    qn.store(gl.load(q_base[:, None] + dn[None, :], mask=q_ok, other=0.0))
    qr.store(gl.load(q_base[:, None] + DN + dr[None, :], mask=q_ok, other=0.0))
    fence_async_shared()
    _barrier()

    s_row = gl.arange(0, BM, layout=gl.SliceLayout(1, s_layout))
    column = gl.arange(0, BN, layout=gl.SliceLayout(0, s_layout))
    node = gl.minimum((block * BM + s_row) // HEADS, rows - 1)
    m = gl.full([BM], -float("inf"), gl.float32, layout=gl.SliceLayout(1, s_layout))
    weights = gl.zeros([BM, BN], gl.float32, layout=s_layout)  # summed over columns once, at the end
    acc = gl.zeros([BM, DN], gl.float32, layout=o_layout)
    for tile in range(lo, hi):
        turn = tile - lo
        buffer = turn % BUFFERS
        mbarrier.wait(full.index(buffer), turn // BUFFERS & 1)
        fence_async_shared()
        zero = gl.zeros([BM, BN], gl.float32, layout=s_layout)
        s = warpgroup_mma(qr, kr.index(buffer).permute((1, 0)), zero, use_acc=False, is_async=True)
        s = warpgroup_mma(qn, kn.index(buffer).permute((1, 0)), s, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s]) * scale
        if tile >= prefix_tiles:
            token = (tile - prefix_tiles) * BN + column
            if CAUSAL:
                seen = token[None, :] <= node[:, None]
            else:
                word = gl.minimum(token, rows - 1) // 32
                words = gl.load(mask + node[:, None] * WORDS + word[None, :])
                seen = ((words >> (token % 32)[None, :]) & 1) != 0
            s = gl.where(seen & (token < rows)[None, :], s, -float("inf"))
        elif (tile + 1) * BN > prefix:
            s = gl.where((tile * BN + column < prefix)[None, :], s, -float("inf"))
        m_new = gl.maximum(m, gl.max(s, 1))
        base = gl.where(m_new == -float("inf"), 0.0, m_new)
        p = gl.exp2(s - base[:, None])
        decay = gl.exp2(m - base)
        m = m_new
        p_shared.store(p.to(gl.bfloat16))
        fence_async_shared()
        weights = weights * decay[:, None] + p
        acc = acc * gl.convert_layout(decay, gl.SliceLayout(1, o_layout))[:, None]
        _barrier()
        acc = warpgroup_mma(p_shared, kn.index(buffer), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(buffer), count=1)

    l = gl.sum(weights, 1)
    total = gl.where(l == 0.0, 1.0, l)
    lse = gl.where(l == 0.0, -float("inf"), m + gl.log2(total))
    acc = acc / gl.convert_layout(total, gl.SliceLayout(1, o_layout))[:, None]
    s_flat = (first_row + node) * HEADS + (block * BM + s_row) % HEADS
    s_ok = block * BM + s_row < rows * HEADS
    o_row = block * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, o_layout))
    o_flat = (first_row + gl.minimum(o_row // HEADS, rows - 1)) * HEADS + o_row % HEADS
    o_ok = (o_row < rows * HEADS)[:, None]
    dv = gl.arange(0, DN, layout=gl.SliceLayout(0, o_layout))[None, :]
    if active <= 1:
        gl.store(out + o_flat.to(gl.int64)[:, None] * DN + dv, acc.to(gl.bfloat16), mask=o_ok)
        if WITH_LSE:
            gl.store(lse_out + s_flat, lse * 0.6931471805599453, mask=s_ok)
    else:
        gl.store(part + (split * total_rows * HEADS + o_flat).to(gl.int64)[:, None] * DN + dv, acc, mask=o_ok)
        gl.store(part_lse + split * total_rows * HEADS + s_flat, lse, mask=s_ok)


@gluon.jit
def hopper_kernel(
    Q, KC, KT, TABLE, TABLE_START, PREFIX, ROW_START, MASK, OUT, LSE, PART, PART_LSE,
    k_stride, kt_stride, total_rows, scale,
    HEADS: gl.constexpr, CAUSAL: gl.constexpr, HAS_TREE: gl.constexpr, PAGE: gl.constexpr, WORDS: gl.constexpr,
    SPLITS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, DN: gl.constexpr, DR: gl.constexpr,
    BUFFERS: gl.constexpr, WITH_LSE: gl.constexpr,
):  # fmt: skip
    """Grid: (row blocks, splits, requests), as in `split_kernel`."""
    block, split, request = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    prefix = gl.load(PREFIX + request).to(gl.int32)
    first_row = gl.load(ROW_START + request).to(gl.int32)
    rows = gl.load(ROW_START + request + 1).to(gl.int32) - first_row
    tree_rows = rows if HAS_TREE else 0
    lo, hi, prefix_tiles, active = split_range(prefix, tree_rows, split, SPLITS, BN)
    tl.extra.cuda.gdc_launch_dependents()
    if block * BM < rows * HEADS and (lo < hi or split == 0):
        tile: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
        qn = gl.allocate_shared_memory(gl.bfloat16, [BM, DN], tile)
        qr = gl.allocate_shared_memory(gl.bfloat16, [BM, DR], tile)
        p_shared = gl.allocate_shared_memory(gl.bfloat16, [BM, BN], tile)
        kn = gl.allocate_shared_memory(gl.bfloat16, [BUFFERS, BN, DN], tile)
        kr = gl.allocate_shared_memory(gl.bfloat16, [BUFFERS, BN, DR], tile)
        full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
        empty = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
        for i in gl.static_range(BUFFERS):
            mbarrier.init(full.index(i), count=128)  # each producer thread arrives when its copies land
            mbarrier.init(empty.index(i), count=1)
        table = TABLE + gl.load(TABLE_START + request)
        gl.warp_specialize(
            [
                (
                    _consume,
                    (
                        Q, MASK + first_row * WORDS, OUT, LSE, PART, PART_LSE, first_row, prefix, rows, prefix_tiles,
                        lo, hi, block, split, active, total_rows, scale, qn, qr, kn, kr, p_shared, full, empty,
                        HEADS, CAUSAL, WORDS, BM, BN, DN, DR, BUFFERS, WITH_LSE,
                    ),
                ),
                (
                    _produce,
                    (
                        KC, KT, k_stride, kt_stride, table, first_row, prefix, rows, prefix_tiles, lo, hi,
                        kn, kr, full, empty, PAGE, BN, DN, DR, BUFFERS,
                    ),
                ),
            ],
            [4],
            [64],
        )  # fmt: skip
