"""The served distribution: tokens sampled at top-k 8 by two servers, compared by chi-square."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from servers import Server

PROMPTS, SAMPLES, AT_ONCE, TOKENS, TOPK = 4, 6400, 64, 3, 8
REQUESTS_AT_ONCE = 4
SMALLEST_CELL = 10
SIGNIFICANT = 0.001

Counts = list[dict[str, int]]  # for each prompt, how often which tokens came


def count(server: Server, prompts: Sequence[list[int]], samples: int = SAMPLES) -> Counts:
    """`samples` answers of TOKENS tokens to each of PROMPTS prompts: 25,600 draws in all by default."""

    def ask(ids: list[int]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = server.generate(ids, TOKENS, temperature=1.0, top_k=TOPK, n=AT_ONCE)
        return answers

    found = []
    for ids in prompts[:PROMPTS]:
        with concurrent.futures.ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            answers = itertools.chain.from_iterable(pool.map(ask, [ids] * -(-samples // AT_ONCE)))
            drawn = [" ".join(map(str, answer["output_ids"])) for answer in answers]
        found.append(dict(collections.Counter(drawn)))
    return found


def statistic(left: dict[str, int], right: dict[str, int]) -> tuple[float, int]:
    """Chi-square of homogeneity and its degrees of freedom; outcomes seen fewer than SMALLEST_CELL times by
    both together share one cell.
    """
    totals = sum(left.values()), sum(right.values())
    pairs = [(left.get(name, 0), right.get(name, 0)) for name in sorted({*left, *right})]
    common = [pair for pair in pairs if sum(pair) >= SMALLEST_CELL]
    rare = [pair for pair in pairs if sum(pair) < SMALLEST_CELL]
    cells = [*common, *([(sum(a for a, _ in rare), sum(b for _, b in rare))] if rare else [])]
    value = 0.0
    for cell in cells:
        for seen, total in zip(cell, totals, strict=True):
            expected = sum(cell) * total / sum(totals)
            value += (seen - expected) ** 2 / expected
    return value, max(len(cells) - 1, 0)


def compare(expected: Counts, found: Counts) -> dict[str, Any]:
    """chi-square summed over the prompts; p: how likely one so large is for equal distributions."""
    sums = [statistic(left, right) for left, right in zip(expected, found, strict=True)]
    value, freedom = sum(one for one, _ in sums), sum(one for _, one in sums)
    half = torch.tensor([freedom / 2, value / 2], dtype=torch.float64)
    p = float(torch.special.gammaincc(half[0], half[1]))
    return {
        "chi_square": round(value, 2),
        "degrees_of_freedom": freedom,
        "p": p,
        "same": p > SIGNIFICANT,
        "draws": sum(sum(counts.values()) for counts in found),
        "outcomes": [len(counts) for counts in found],
    }
