"""The Triton programs behind `best_tokens`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def parts_kernel(LOGITS, VALUES, TOKENS, NORMS, VOCABULARY, STRIDE, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """Best WIDTH of one part of one row, equal values in order of their tokens, and its log of summed
    exponentials."""
    row, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    token = part * SIZE + tl.arange(0, SIZE)
    value = tl.load(LOGITS + row * STRIDE + token, mask=token < VOCABULARY, other=-float("inf")).to(
        tl.float32
    )
    value = tl.where(value == value, value, -float("inf"))
    peak = tl.max(value, 0)
    shift = tl.where(peak == -float("inf"), 0.0, peak)
    place = row * parts + part
    tl.store(NORMS + place, shift + tl.log(tl.sum(tl.exp(value - shift), 0)))
    taken = token >= VOCABULARY
    for rank in tl.static_range(WIDTH):
        best = tl.max(tl.where(taken, -float("inf"), value), 0)
        first = tl.min(tl.where((value == best) & (taken == 0), token, 2147483647), 0)
        tl.store(VALUES + place * WIDTH + rank, best)
        tl.store(TOKENS + place * WIDTH + rank, first.to(tl.int64))
        taken = taken | (token == first)


@triton.jit
def whole_kernel(
    VALUES,
    TOKENS,
    NORMS,
    BEST,
    IDS,
    NORM,
    PARTS,
    WIDTH: tl.constexpr,
    FOUND: tl.constexpr,
    HELD: tl.constexpr,
):
    """Best WIDTH of one row's parts, and the row's log of summed exponentials."""
    row = tl.program_id(0)
    held = tl.arange(0, HELD)
    norm = tl.load(NORMS + row * PARTS + held, mask=held < PARTS, other=-float("inf"))
    peak = tl.max(norm, 0)
    shift = tl.where(peak == -float("inf"), 0.0, peak)
    tl.store(NORM + row, shift + tl.log(tl.sum(tl.exp(norm - shift), 0)))
    found = tl.arange(0, FOUND)
    taken = found >= PARTS * WIDTH
    value = tl.load(VALUES + row * PARTS * WIDTH + found, mask=found < PARTS * WIDTH, other=-float("inf"))
    token = tl.load(TOKENS + row * PARTS * WIDTH + found, mask=found < PARTS * WIDTH, other=2147483647)
    taken = taken | (token == 2147483647)
    for rank in tl.static_range(WIDTH):
        best = tl.max(tl.where(taken, -float("inf"), value), 0)
        first = tl.min(tl.where((value == best) & (taken == 0), token, 2147483647), 0)
        tl.store(BEST + row * WIDTH + rank, best)
        tl.store(IDS + row * WIDTH + rank, first)
        taken = taken | (token == first)
