"""Read a tree's ancestor bits out of SGLang's flat verify mask."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "words_a_row"])
def pack_kernel(
    FLAT, FLAT_START, KV_START, LENGTHS, PACKED, rows, words_a_row,
    HAS_MASK: tl.constexpr,
):  # fmt: skip
    """Grid: (requests, rows). SGLang keeps `rows` lines of prefix + rows bools a request, we int32 words.

    Also writes each request's prefix length, the difference of neighbouring KV starts.
    """
    request, row = tl.program_id(0), tl.program_id(1)
    prefix = tl.load(KV_START + request + 1) - tl.load(KV_START + request)
    if row == 0:
        tl.store(LENGTHS + request, prefix)
    if HAS_MASK:
        line = FLAT + tl.load(FLAT_START + request) + row.to(tl.int64) * (prefix + rows) + prefix
        for word in range(words_a_row):
            bit = tl.arange(0, 32)
            column = word * 32 + bit
            seen = tl.load(line + column, mask=column < rows, other=0) != 0
            packed = tl.sum(tl.where(seen, 1 << bit, 0), 0)
            tl.store(PACKED + (request * rows + row) * words_a_row + word, packed)
