"""The places a step writes: one window of its verify rows after each request's prefix, planned once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kdtree_engine.sglang.compat import runtime as sgl


@dataclass(frozen=True)
class Window:
    """b requests, N rows each. ids: [b, N], the last known token, then the drafter's mask token. positions:
    [b, N], prefix + 0 ... N - 1. cache_loc: [b * N], the rows' KV places. plan: SGLang's for these places.
    host_lens: [b] on the host, an upper bound of prefix_lens: [b], the cached tokens of each request.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    cache_loc: torch.Tensor
    plan: Any
    host_lens: torch.Tensor
    prefix_lens: torch.Tensor

    def block(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids [b, size] and flat positions of each window's first `size` rows."""
        return self.ids[:, :size], self.positions[:, :size].reshape(-1)

    def host_lens_with(self, batch: Any, rows: int) -> torch.Tensor:
        """What SGLang plans a forward of `rows` rows from: [b] on the host, with the rows where the prefixes
        are known there; the bound counts them already.
        """
        return self.host_lens if batch.seq_lens_cpu is None else self.host_lens + rows


def host_lens(batch: Any) -> torch.Tensor:
    """[b] on the host: the prefixes, or under overlap scheduling a bound of them."""
    known = batch.seq_lens_cpu
    lens: torch.Tensor = known if known is not None else batch.spec_info.nxt_kv_lens_cpu
    return lens


def open_window(worker: Any, batch: Any, prefix_lens: torch.Tensor, size: int) -> Window:
    """size: verify rows N. The draft block is the first part of the verify window, so both forwards share
    places and plan.
    """
    bs = len(prefix_lens)
    bonus = batch.spec_info.bonus_tokens
    ids, positions, cache_loc = (
        torch.empty(bs, size, dtype=torch.int64, device=prefix_lens.device) for _ in range(3)
    )
    req_to_token = worker.model_runner.req_to_token_pool.req_to_token
    if prefix_lens.is_cuda:
        sgl.prepare_draft_block(
            bonus_tokens=bonus.view(-1),
            prefix_lens=prefix_lens,
            req_pool_indices=batch.req_pool_indices,
            req_to_token=req_to_token,
            block_ids_out=ids,
            positions_out=positions,
            cache_loc_out=cache_loc,
            mask_token_id=int(worker._mask_token_id),
        )
    else:
        ids.fill_(int(worker._mask_token_id))
        ids[:, 0] = bonus
        torch.add(prefix_lens[:, None], torch.arange(size), out=positions)
        cache_loc = req_to_token[batch.req_pool_indices[:, None], positions].to(torch.int64)
    lens, flat = host_lens(batch), cache_loc.view(-1)
    plan = worker.model_runner.kv_index_translator.plan(
        req_pool_indices=batch.req_pool_indices,
        seq_lens=prefix_lens,
        seq_lens_cpu=lens,
        write_virtual=flat,
        read_extent=size,
    )
    return Window(ids, positions, flat, plan, lens, prefix_lens)
