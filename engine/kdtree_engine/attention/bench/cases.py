"""The measured cases and their inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from kdtree_engine.attention.shapes import AttentionShape
from kdtree_engine.attention.tensors import CACHE_DTYPES, PagedCache, Tree, pack_mask, query_dtype


@dataclass(frozen=True)
class Case:
    """`batch` requests of `context` cached tokens and `rows` tree nodes, pages of `page` shuffled."""

    name: str
    shape: AttentionShape
    batch: int
    context: int
    rows: int
    page: int = 1

    @property
    def cache_bytes(self) -> int:
        return self.batch * self.context * self.shape.token_bytes

    def floor_ms(self, bandwidth: float, rate: float) -> float:
        """The larger of reading the cache once and doing the arithmetic once."""
        total = self.batch * self.shape.operations(self.rows, self.context + self.rows)
        return max(self.cache_bytes / bandwidth, total / rate) * 1e3


class Inputs:
    """Device tensors of one case, with `copies` separate caches that together exceed 3x the L2."""

    def __init__(self, case: Case, l2_bytes: int) -> None:
        self.case, shape = case, case.shape
        self.copies = max(2, -(-3 * l2_bytes // case.cache_bytes))
        self.compute = query_dtype(shape.cache)
        self.pages = -(-case.context // case.page)
        self.slots = case.batch * self.pages * case.page
        dtype = CACHE_DTYPES[shape.cache]
        self.keys = self._random(self.copies * self.slots, shape.kv_heads, shape.key_dim).to(dtype)
        self.values: torch.Tensor | None = None
        if not shape.shared_kv:
            self.values = self._random(self.copies * self.slots, shape.kv_heads, shape.value_dim).to(dtype)
        rows = case.batch * case.rows
        self.query = self._random(rows, shape.query_heads, shape.key_dim)
        self.out = torch.empty(rows, shape.query_heads, shape.value_dim, dtype=self.compute, device="cuda")
        tree_values = None if shape.shared_kv else self._random(rows, shape.kv_heads, shape.value_dim)
        self.mask = torch.ones(case.rows, case.rows, dtype=torch.bool, device="cuda").tril()
        packed = pack_mask(self.mask).repeat(case.batch, 1)
        self.tree = Tree(self._random(rows, shape.kv_heads, shape.key_dim), tree_values, packed)
        self.row_start = torch.arange(case.batch + 1, dtype=torch.int32, device="cuda") * case.rows
        self.lengths = torch.full((case.batch,), case.context, dtype=torch.int32, device="cuda")
        self.tables = [
            torch.randperm(case.batch * self.pages, device="cuda").to(torch.int32).view(case.batch, -1)
            for _ in range(self.copies)
        ]
        self.table_start = torch.arange(case.batch, dtype=torch.int32, device="cuda") * self.pages

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=self.compute) * 0.5

    def cache(self, copy: int) -> PagedCache:
        part = slice(copy * self.slots, (copy + 1) * self.slots)
        values = None if self.values is None else self.values[part]
        return PagedCache(
            self.keys[part], values, self.tables[copy], self.table_start, self.lengths, self.case.page
        )

    @cached_property
    def slot_lists(self) -> list[torch.Tensor]:
        """For each copy the slots of every cached token, request after request, int64."""
        token = torch.arange(self.case.context, device="cuda")
        page, offset = token // self.case.page, token % self.case.page
        return [(t[:, page].long() * self.case.page + offset).flatten() for t in self.tables]


def case_grid(
    shape: AttentionShape, name: str, contexts: tuple[int, ...], rows: tuple[int, ...]
) -> list[Case]:
    """Batch 1 at every context, batch 8 at 5.5k and 32k where asked for, pages of one token."""
    cases = [Case(name, shape, 1, context, row) for context in contexts for row in rows]
    return cases + [Case(name, shape, 8, c, row) for c in (5568, 32768) if c in contexts for row in rows]
