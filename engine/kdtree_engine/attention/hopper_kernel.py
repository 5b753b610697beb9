"""The split kernel for sm_90 and a bf16 shared latent, in Gluon.

Four warpgroups: one gathers latent rows by page table into a ring of two tiles (cp.async, since a
page may be a single row), one turns a tile into softmax weights, two own half of the value width
each and multiply. Scores of a tile overlap values of the one before. Rows, splits, partial results
and merge are those of `split_kernel`.
"""

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
_NEW_VIEW = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))


@gluon.jit
def _view(memory, SHAPE: gl.constexpr, LAYOUT: gl.constexpr):
    """The same bytes of shared memory as bf16 in another shape."""
    if _NEW_VIEW:
        return memory.reinterpret(gl.bfloat16, SHAPE, LAYOUT)
    else:  # noqa: RET505, an untaken branch must not be compiled
        return memory._reinterpret(gl.bfloat16, SHAPE, LAYOUT)


@gluon.jit
def _lookup(table, tile, n, prefix, PAGE: gl.constexpr, BN: gl.constexpr):
    """Pages of the tokens of `tile`; past the prefix, those of its last token."""
    token = gl.minimum(tile * BN + n, prefix - 1)
    return gl.load(table + gl.maximum(token, 0) // PAGE, mask=token >= 0, other=0)


@gluon.jit
def _fetch(
    keys, tree_keys, k_stride, kt_stride, first_row, prefix, rows, prefix_tiles, tile, n, pages,
    kn, kr, full,
    PAGE: gl.constexpr, BN: gl.constexpr, DN: gl.constexpr, DR: gl.constexpr, LAYOUT: gl.constexpr,
):  # fmt: skip
    """Start copying a tile of the prefix, or of the tree's own keys; `full` completes when it has landed."""
    dn = gl.arange(0, DN, layout=gl.SliceLayout(0, LAYOUT))
    dr = gl.arange(0, DR, layout=gl.SliceLayout(0, LAYOUT))
    token = gl.minimum(tile * BN + n, prefix - 1)
    slot = pages.to(gl.int64) * PAGE + token % PAGE
    base = keys
    stride = k_stride
    if tile >= prefix_tiles:
        base = tree_keys
        stride = kt_stride
        slot = (first_row + gl.minimum((tile - prefix_tiles) * BN + n, rows - 1)).to(gl.int64)
    row = base + slot * stride
    _copy(kr, row[:, None] + DN + dr[None, :])
    _copy(kn, row[:, None] + dn[None, :])
    async_copy.mbarrier_arrive(full, increment_count=False)


@gluon.jit
def _score(
    mask, words_a_row, lse_out, part_lse, first_row, prefix, rows, prefix_tiles, lo, hi, block, place,
    active, scale,
    qn, qr, kn, kr, decays, sums, full, ready, loaded, done,
    HEADS: gl.constexpr, CAUSAL: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    BUFFERS: gl.constexpr, WITH_LSE: gl.constexpr,
):  # fmt: skip
    """The online softmax of one row block; a tile's weights replace its rope part, which is then dead."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    weights: gl.constexpr = gl.NVMMASharedLayout(BN * 2, 16, 2)
    folded = block * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, BN, layout=gl.SliceLayout(0, layout))
    node = gl.minimum(folded // HEADS, rows - 1)
    # Finite, so that a row that has seen nothing yet needs no special case: its weights are exp2(-inf).
    m = gl.full([BM], -1e30, gl.float32, layout=gl.SliceLayout(1, layout))
    den = gl.zeros([BM], gl.float32, layout=gl.SliceLayout(1, layout))
    zero = gl.zeros([BM, BN], gl.float32, layout=layout)
    mbarrier.wait(loaded, 0)
    for tile in range(lo, hi):
        turn = tile - lo
        buffer = turn % BUFFERS
        mbarrier.wait(full.index(buffer), turn // BUFFERS & 1)
        fence_async_shared()
        s = warpgroup_mma(qr, kr.index(buffer).permute((1, 0)), zero, use_acc=False, is_async=True)
        s = warpgroup_mma(qn, kn.index(buffer).permute((1, 0)), s, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])
        if tile >= prefix_tiles:
            token = (tile - prefix_tiles) * BN + column
            if CAUSAL:
                seen = token[None, :] <= node[:, None]
            else:
                word = gl.minimum(token, rows - 1) // 32
                words = gl.load(mask + node[:, None] * words_a_row + word[None, :])
                seen = ((words >> (token % 32)[None, :]) & 1) != 0
            s = gl.where(seen & (token < rows)[None, :], s, -float("inf"))
        elif (tile + 1) * BN > prefix:
            s = gl.where((tile * BN + column < prefix)[None, :], s, -float("inf"))
        m_new = gl.maximum(m, gl.max(s, 1) * scale)
        p = gl.exp2(s * scale - m_new[:, None])
        decay = gl.exp2(m - m_new)
        m = m_new
        _view(kr.index(buffer), [BM, BN], weights).store(p.to(gl.bfloat16))
        decays.index(buffer).store(decay)
        fence_async_shared()
        mbarrier.arrive(ready.index(buffer), count=1)
        den = den * decay + gl.sum(p, 1)
    total = gl.where(den == 0.0, 1.0, den)
    sums.store(total)
    mbarrier.arrive(done, count=1)
    lse = gl.where(den == 0.0, -float("inf"), m + gl.log2(total))
    flat = (first_row + node) * HEADS + folded % HEADS
    if active > 1:
        gl.store(part_lse + place + flat, lse, mask=folded < rows * HEADS)
    elif WITH_LSE:
        gl.store(lse_out + flat, lse * 0.6931471805599453, mask=folded < rows * HEADS)


@gluon.jit
def _produce(
    query, keys, tree_keys, k_stride, kt_stride, table, first_row, prefix, rows, prefix_tiles, lo, hi, block,
    qn, qr, kn, kr, full, empty, loaded,
    HEADS: gl.constexpr, PAGE: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, DN: gl.constexpr,
    DR: gl.constexpr, BUFFERS: gl.constexpr,
):  # fmt: skip
    """Copy the queries in, then keep the ring of tiles filled."""
    load: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    n = gl.arange(0, BN, layout=gl.SliceLayout(1, load))
    ahead = _lookup(table, lo, n, prefix, PAGE, BN)
    q_row = gl.minimum(block * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, load)), rows * HEADS - 1)
    q = (query + (first_row * HEADS + q_row).to(gl.int64) * (DN + DR))[:, None]
    _copy(qr, q + DN + gl.arange(0, DR, layout=gl.SliceLayout(0, load))[None, :])
    _copy(qn, q + gl.arange(0, DN, layout=gl.SliceLayout(0, load))[None, :])
    async_copy.mbarrier_arrive(loaded, increment_count=False)
    for tile in range(lo, hi):
        turn = tile - lo
        buffer = turn % BUFFERS
        pages = ahead
        ahead = _lookup(table, tile + 1, n, prefix, PAGE, BN)
        mbarrier.wait(empty.index(buffer), (turn // BUFFERS & 1) ^ 1)
        _fetch(
            keys, tree_keys, k_stride, kt_stride, first_row, prefix, rows, prefix_tiles, tile, n, pages,
            kn.index(buffer), kr.index(buffer), full.index(buffer), PAGE, BN, DN, DR, load,
        )  # fmt: skip


@gluon.jit
def _accumulate(
    out, part, first_row, rows, lo, hi, block, place, active, kn, kr, decays, sums, ready, empty, done,
    HEADS: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, DN: gl.constexpr, BUFFERS: gl.constexpr,
    OVERLAP: gl.constexpr,
):  # fmt: skip
    """Weights times values, half of the value width to each warpgroup."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, DN // 4, 16])
    weights: gl.constexpr = gl.NVMMASharedLayout(BN * 2, 16, 2)
    acc = gl.zeros([BM, DN], gl.float32, layout=layout)
    for tile in range(lo, hi):
        turn = tile - lo
        buffer = turn % BUFFERS
        mbarrier.wait(ready.index(buffer), turn // BUFFERS & 1)
        acc = acc * decays.index(buffer).load(gl.SliceLayout(1, layout))[:, None]
        p = _view(kr.index(buffer), [BM, BN], weights)
        acc = warpgroup_mma(p, kn.index(buffer), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(buffer), count=1)
    if OVERLAP:  # not sooner: waiting merge programs would crowd the multiprocessors that still compute
        tl.extra.cuda.gdc_launch_dependents()
    mbarrier.wait(done, 0)
    acc = acc / sums.load(gl.SliceLayout(1, layout))[:, None]
    folded = block * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
    flat = (first_row + gl.minimum(folded // HEADS, rows - 1)) * HEADS + folded % HEADS
    row_ok = (folded < rows * HEADS)[:, None]
    column = gl.arange(0, DN, layout=gl.SliceLayout(0, layout))[None, :]
    if active > 1:
        gl.store(part + (place + flat).to(gl.int64)[:, None] * DN + column, acc, mask=row_ok)
    else:
        gl.store(out + flat.to(gl.int64)[:, None] * DN + column, acc.to(gl.bfloat16), mask=row_ok)


@gluon.jit(do_not_specialize=["total_rows", "words_a_row", "splits"])
def hopper_kernel(
    Q, KC, KT, TABLE, TABLE_START, PREFIX, ROW_START, MASK, OUT, LSE, PART, PART_LSE,
    k_stride, kt_stride, total_rows, words_a_row, splits, scale,
    HEADS: gl.constexpr, CAUSAL: gl.constexpr, HAS_TREE: gl.constexpr, PAGE: gl.constexpr,
    BM: gl.constexpr, BN: gl.constexpr, DN: gl.constexpr, DR: gl.constexpr,
    BUFFERS: gl.constexpr, WITH_LSE: gl.constexpr, OVERLAP: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """Grid: (row blocks, splits, requests), as in `split_kernel`."""
    block, split, request = gl.program_id(0), gl.program_id(1), gl.program_id(2)
    if EARLY:  # what was written before this call is readable only now
        tl.extra.cuda.gdc_wait()
    prefix = gl.load(PREFIX + request).to(gl.int32)
    first_row = gl.load(ROW_START + request).to(gl.int32)
    rows = gl.load(ROW_START + request + 1).to(gl.int32) - first_row
    table = TABLE + gl.load(TABLE_START + request)
    tree_rows = rows if HAS_TREE else 0
    lo, hi, prefix_tiles, active = split_range(prefix, tree_rows, split, splits, BN)
    if block * BM < rows * HEADS and lo < hi:
        swizzled: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
        flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
        qn = gl.allocate_shared_memory(gl.bfloat16, [BM, DN], swizzled)
        qr = gl.allocate_shared_memory(gl.bfloat16, [BM, DR], swizzled)
        kn = gl.allocate_shared_memory(gl.bfloat16, [BUFFERS, BN, DN], swizzled)
        kr = gl.allocate_shared_memory(gl.bfloat16, [BUFFERS, BN, DR], swizzled)
        decays = gl.allocate_shared_memory(gl.float32, [BUFFERS, BM], flat)
        sums = gl.allocate_shared_memory(gl.float32, [BM], flat)
        full = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
        ready = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
        empty = gl.allocate_shared_memory(gl.int64, [BUFFERS, 1], mbarrier.MBarrierLayout())
        loaded = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        for i in gl.static_range(BUFFERS):
            mbarrier.init(full.index(i), count=128)  # each copying thread arrives when its copies land
            mbarrier.init(ready.index(i), count=1)
            mbarrier.init(empty.index(i), count=1)
        mbarrier.init(loaded, count=128)
        mbarrier.init(done, count=1)
        place = split * total_rows * HEADS
        gl.warp_specialize(
            [
                (
                    _accumulate,
                    (
                        OUT, PART, first_row, rows, lo, hi, block, place, active, kn, kr, decays, sums,
                        ready, empty,
                        done, HEADS, BM, BN, DN, BUFFERS, OVERLAP,
                    ),
                ),
                (
                    _score,
                    (
                        MASK + first_row * words_a_row, words_a_row, LSE, PART_LSE, first_row, prefix, rows,
                        prefix_tiles, lo,
                        hi, block,
                        place, active, scale, qn, qr, kn, kr, decays, sums, full, ready, loaded, done,
                        HEADS, CAUSAL, BM, BN, BUFFERS, WITH_LSE,
                    ),
                ),
                (
                    _produce,
                    (
                        Q, KC, KT, k_stride, kt_stride, table, first_row, prefix, rows, prefix_tiles, lo, hi,
                        block,
                        qn, qr, kn, kr, full, empty, loaded, HEADS, PAGE, BM, BN, DN, DR, BUFFERS,
                    ),
                ),
            ],
            [4, 4],
            [112, 40],
        )  # fmt: skip
    elif block * BM < rows * HEADS and split == 0:  # nothing to see at all
        layout: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [8, 1], [1, 0])
        folded = block * BM + gl.arange(0, BM, layout=gl.SliceLayout(1, layout))
        column = gl.arange(0, DN, layout=gl.SliceLayout(0, layout))
        row = (first_row * HEADS + folded).to(gl.int64)
        nothing = gl.zeros([BM, DN], gl.bfloat16, layout=layout)
        gl.store(OUT + row[:, None] * DN + column[None, :], nothing, mask=(folded < rows * HEADS)[:, None])
        if WITH_LSE:
            nowhere = gl.full([BM], -float("inf"), gl.float32, layout=gl.SliceLayout(1, layout))
            gl.store(LSE + row, nowhere, mask=folded < rows * HEADS)
