"""Second pass: weigh the partial results of the splits by their log-sum-exp."""

import triton
import triton.language as tl

from kdtree_engine.attention.split_kernel import split_range


@triton.jit(do_not_specialize=["total_rows", "splits"])
def merge_kernel(
    PART, PART_LSE, PREFIX, ROW_START, OUT, LSE, total_rows, splits,
    HEADS: tl.constexpr, HAS_TREE: tl.constexpr, BN: tl.constexpr, DV: tl.constexpr,
    BD: tl.constexpr, BS: tl.constexpr, WITH_LSE: tl.constexpr, OVERLAP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Grid: (rows x heads, value slices, requests). Reads only splits that had work."""
    request, folded = tl.program_id(2), tl.program_id(0)
    prefix = tl.load(PREFIX + request)
    first_row = tl.load(ROW_START + request)
    rows = tl.load(ROW_START + request + 1) - first_row
    _, _, _, active = split_range(prefix, rows if HAS_TREE else 0, 0, splits, BN)
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
    if EARLY:  # the next call's split kernel may take its place on the card
        tl.extra.cuda.gdc_launch_dependents()
    if folded < rows * HEADS and active > 1:
        flat = first_row * HEADS + folded
        column = tl.program_id(1) * BD + tl.arange(0, BD)
        m = -float("inf")
        den = 0.0
        acc = tl.zeros([BD], tl.float32)
        for s0 in tl.range(0, active, BS):
            s = s0 + tl.arange(0, BS)
            place = (s * total_rows * HEADS + flat).to(tl.int64)
            lse = tl.load(PART_LSE + place, mask=s < active, other=-float("inf"))
            x = tl.load(PART + place[:, None] * DV + column[None, :], mask=(s < active)[:, None], other=0.0)
            m_new = tl.maximum(m, tl.max(lse, 0))
            base = tl.where(m_new == -float("inf"), 0.0, m_new)
            w = tl.exp2(lse - base)
            decay = tl.exp2(m - base)
            den = den * decay + tl.sum(w, 0)
            acc = acc * decay + tl.sum(x * w[:, None], 0)
            m = m_new
        total = tl.where(den == 0.0, 1.0, den)
        tl.store(OUT + flat.to(tl.int64) * DV + column, (acc / total).to(OUT.dtype.element_ty))
        if WITH_LSE and tl.program_id(1) == 0:
            lse = (m + tl.log2(total)) * 0.6931471805599453
            tl.store(LSE + flat, tl.where(den == 0.0, -float("inf"), lse))
