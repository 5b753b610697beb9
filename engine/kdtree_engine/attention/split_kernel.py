"""The portable Triton kernel: one block of folded rows against one split of the context.

Rows are (tree node, head of the KV group) pairs, so each KV tile is read once per row block.
Flash-decoding's split over KV (Dao et al., 2023) with base-2 softmax; a split leaves its
normalised partial result and log2-sum-exp for the merge.
"""

import triton
import triton.language as tl


@triton.jit
def split_range(prefix, rows, split, splits, BN: tl.constexpr):
    """First and one-past-last tile of `split`, the prefix's tile count, and how many splits have work."""
    prefix_tiles = tl.cdiv(prefix, BN)
    count = prefix_tiles + tl.cdiv(rows, BN)
    each = tl.maximum(tl.cdiv(count, splits), 1)
    lo = split * each
    return lo, tl.minimum(lo + each, count), prefix_tiles, tl.cdiv(count, each)


@triton.jit
def _dot(a, b, acc, PRECISION: tl.constexpr, WIDEN: tl.constexpr):
    """a @ b + acc. Triton's interpreter multiplies bf16 bit patterns, so there operands are widened."""
    if WIDEN:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision=PRECISION)
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def _slots(tile, length, table, first_row, TREE: tl.constexpr, PAGE: tl.constexpr, BN: tl.constexpr):
    """Where the tokens of `tile` lie. Past the end, the last real token: weight 0, but a finite value."""
    token = tl.maximum(tl.minimum(tile * BN + tl.arange(0, BN), length - 1), 0)
    if TREE:
        return (first_row + token).to(tl.int64)
    page = tl.load(table + token // PAGE, mask=token < length, other=0)
    return page.to(tl.int64) * PAGE + token % PAGE


@triton.jit
def _seen(token, length, node, mask, words_a_row, TREE: tl.constexpr, CAUSAL: tl.constexpr):
    """Which of a tile's tokens each row attends to."""
    keep = (token < length)[None, :]
    if TREE and CAUSAL:
        keep = keep & (token[None, :] <= node[:, None])
    if TREE and not CAUSAL:
        word = tl.minimum(token, length - 1) // 32
        words = tl.load(mask + node[:, None] * words_a_row + word[None, :])
        keep = keep & (((words >> (token % 32)[None, :]) & 1) != 0)
    return keep


@triton.jit
def _walk(
    acc, m, den, qn, qr, ahead, lo, hi, length, K, V, k_stride, v_stride, table, first_row, node, mask,
    words_a_row, scale,
    TREE: tl.constexpr, CAUSAL: tl.constexpr, PAGE: tl.constexpr, BN: tl.constexpr,
    DN: tl.constexpr, DR: tl.constexpr, DV: tl.constexpr, SHARED: tl.constexpr, STAGES: tl.constexpr,
    PRECISION: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Fold tiles lo to hi of the prefix, or of the tree, into the running softmax state.

    `ahead` holds where the tokens of tile lo lie.
    """
    dn = tl.arange(0, DN)
    WGMMA: tl.constexpr = SHARED and qn.shape[0] >= 64
    for tile in tl.range(lo, hi, num_stages=STAGES):
        token = tile * BN + tl.arange(0, BN)
        slot = ahead
        # One tile ahead, so that the loads below never wait for an address and can be pipelined.
        ahead = _slots(tile + 1, length, table, first_row, TREE, PAGE, BN)
        k = tl.load(K + slot[:, None] * k_stride + dn[None, :]).to(qn.dtype)
        kt = tl.trans(k)
        v = k
        if DR > 0:
            kr = tl.load(K + slot[:, None] * k_stride + DN + tl.arange(0, DR)[None, :]).to(qn.dtype)
            krt = tl.trans(kr)
        if not SHARED:
            v = tl.load(V + slot[:, None] * v_stride + tl.arange(0, DV)[None, :]).to(qn.dtype)
        # Always true. Triton issues the next tile's copies before a branch that only the loop's state leaves,
        # but after products that stand in the loop itself, where it would wait for them at once.
        ordered = tile < hi if WGMMA else True
        if ordered:
            zero = tl.zeros([qn.shape[0], BN], tl.float32)
            raw = _dot(qn, kt, zero, PRECISION, WIDEN) * scale
            if DR > 0:
                raw = raw + _dot(qr, krt, zero, PRECISION, WIDEN) * scale
            if WGMMA:
                # Every use of the scores lies in a branch, also where one could do without: a product that
                # Triton sees feeding another is computed by every warpgroup in full, twice the work on sm_90.
                if (tile + 1) * BN > length or (TREE and length > 0):
                    keep = _seen(token, length, node, mask, words_a_row, TREE, CAUSAL)
                    s = tl.where(keep, raw, -float("inf"))
                else:
                    s = raw
            else:
                keep = _seen(token, length, node, mask, words_a_row, TREE, CAUSAL)
                s = tl.where(keep, raw, -float("inf"))
            m_new = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s - m_new[:, None])
            decay = tl.exp2(m - m_new)
            # A latent's tiles keep a sum a column: one exchange between warps a split, not a tile.
            den = den * decay[:, None] + p if SHARED else den * decay + tl.sum(p, 1)
            m = m_new
            acc = _dot(p.to(qn.dtype), v, acc * decay[:, None], PRECISION, WIDEN)
    return acc, m, den


@triton.jit(do_not_specialize=["total_rows", "words_a_row", "splits", "blocks"])
def split_kernel(
    Q, KC, VC, KT, VT, TABLE, TABLE_START, PREFIX, ROW_START, MASK, OUT, LSE, PART, PART_LSE,
    k_stride, v_stride, kt_stride, vt_stride, total_rows, words_a_row, splits, blocks,
    scale, kv_scale,
    HEADS: tl.constexpr, GROUP: tl.constexpr, CAUSAL: tl.constexpr, HAS_TREE: tl.constexpr,
    PAGE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, DN: tl.constexpr, DR: tl.constexpr, DV: tl.constexpr,
    SHARED: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr, WITH_LSE: tl.constexpr,
    OVERLAP: tl.constexpr, EARLY: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Grid: (row blocks x KV heads, splits, requests): row blocks of a split run together, sharing L2."""
    block, kv_head = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    split, request = tl.program_id(1), tl.program_id(2)
    if EARLY:  # what was written before this call is readable only now
        tl.extra.cuda.gdc_wait()
    prefix = tl.load(PREFIX + request)
    first_row = tl.load(ROW_START + request)
    rows = tl.load(ROW_START + request + 1) - first_row
    tree_rows = rows if HAS_TREE else 0
    lo, hi, prefix_tiles, active = split_range(prefix, tree_rows, split, splits, BN)
    # With nothing to attend to at all, split 0 still writes the zero output.
    if block * BM < rows * GROUP and (lo < hi or split == 0):
        table = TABLE + tl.load(TABLE_START + request)
        ahead = _slots(lo, prefix, table, first_row, False, PAGE, BN)  # on its way while the queries load
        folded = block * BM + tl.arange(0, BM)
        row_ok = folded < rows * GROUP
        node = tl.minimum(folded // GROUP, rows - 1)
        head = kv_head * GROUP + folded % GROUP
        flat = (first_row + node) * HEADS + head
        dn, dv = tl.arange(0, DN), tl.arange(0, DV)
        query = Q + flat.to(tl.int64)[:, None] * (DN + DR)
        qn = tl.load(query + dn[None, :], mask=row_ok[:, None], other=0.0)
        qr = qn
        if DR > 0:
            qr = tl.load(query + DN + tl.arange(0, DR)[None, :], mask=row_ok[:, None], other=0.0)
        # Finite, so that a row that has seen nothing yet needs no special case: its weights are exp2(-inf).
        m = tl.full([BM], -1e30, tl.float32)
        den = tl.zeros([BM, BN] if SHARED else [BM], tl.float32)
        acc = tl.zeros([BM, DV], tl.float32)
        # A loop whose products stand in a branch needs a count of stages of its own. With that Triton copies
        # the page table asynchronously too, and waiting for it waits for every copy before it: two stages are
        # all that help. With the kernel's count (None) the table is read into registers.
        OWN_STAGES: tl.constexpr = STAGES if SHARED and BM >= 64 else None
        acc, m, den = _walk(
            acc, m, den, qn, qr, ahead, lo, tl.minimum(hi, prefix_tiles), prefix, KC + kv_head * (DN + DR),
            VC + kv_head * DV, k_stride, v_stride, table, first_row, node, MASK, words_a_row,
            scale * kv_scale,
            False, CAUSAL, PAGE, BN, DN, DR, DV, SHARED, OWN_STAGES, PRECISION, WIDEN)  # fmt: skip
        acc *= kv_scale
        if HAS_TREE:
            start = tl.maximum(lo - prefix_tiles, 0)
            ahead = _slots(start, rows, TABLE, first_row, True, PAGE, BN)
            acc, m, den = _walk(
                acc, m, den, qn, qr, ahead, start, hi - prefix_tiles, rows,
                KT + kv_head * (DN + DR), VT + kv_head * DV, kt_stride, vt_stride, TABLE, first_row, node,
                MASK + first_row * words_a_row, words_a_row, scale,
                True, CAUSAL, PAGE, BN, DN, DR, DV, SHARED, 1, PRECISION, WIDEN)  # fmt: skip
        if SHARED:
            den = tl.sum(den, 1)
        if OVERLAP:  # not sooner: waiting merge programs would crowd the multiprocessors that still compute
            tl.extra.cuda.gdc_launch_dependents()
        total = tl.where(den == 0.0, 1.0, den)
        lse = tl.where(den == 0.0, -float("inf"), m + tl.log2(total))
        acc = acc / total[:, None]
        if active <= 1:  # alone: the result is final and the merge leaves it
            tl.store(
                OUT + flat.to(tl.int64)[:, None] * DV + dv[None, :],
                acc.to(OUT.dtype.element_ty),
                mask=row_ok[:, None],
            )
            if WITH_LSE:
                tl.store(LSE + flat, lse * 0.6931471805599453, mask=row_ok)
        else:
            place = (split * total_rows * HEADS + flat).to(tl.int64)
            tl.store(PART + place[:, None] * DV + dv[None, :], acc, mask=row_ok[:, None])
            tl.store(PART_LSE + place, lse, mask=row_ok)
