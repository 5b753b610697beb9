"""A step's window by SGLang's kernel, as on a GPU, and by torch, as on a CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from kdtree_engine.sglang.compat import runtime as sgl
from kdtree_engine.sglang.window import open_window

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MASK, SIZE = 3, 11


def worker(req_to_token: torch.Tensor) -> Any:
    translator = SimpleNamespace(plan=lambda **planned: planned)
    runner = SimpleNamespace(
        req_to_token_pool=SimpleNamespace(req_to_token=req_to_token), kv_index_translator=translator
    )
    return SimpleNamespace(options=SimpleNamespace(budget=SIZE), model_runner=runner, _mask_token_id=MASK)


def test_both_ways_give_the_same_window() -> None:
    req_to_token = torch.randperm(4 * 40).view(4, 40).to(torch.int32)
    lens, rows = torch.tensor([5, 0, 29]), torch.tensor([2, 0, 3])
    bonus = torch.tensor([70, 71, 72])
    batch = SimpleNamespace(
        spec_info=SimpleNamespace(bonus_tokens=bonus), req_pool_indices=rows, seq_lens_cpu=lens.clone()
    )
    window = open_window(worker(req_to_token), batch, lens, SIZE)
    ids, positions, places = (torch.empty(3, SIZE, dtype=torch.int64, device=DEVICE) for _ in range(3))
    sgl.prepare_draft_block(
        bonus_tokens=bonus.to(DEVICE),
        prefix_lens=lens.to(DEVICE),
        req_pool_indices=rows.to(DEVICE),
        req_to_token=req_to_token.to(DEVICE),
        block_ids_out=ids,
        positions_out=positions,
        cache_loc_out=places,
        mask_token_id=MASK,
    )
    assert window.ids.tolist() == ids.tolist()
    assert window.positions.tolist() == positions.tolist()
    assert window.cache_loc.tolist() == places.flatten().tolist()
    assert window.plan["write_virtual"] is window.cache_loc
    assert window.block(4)[1].tolist() == [5, 6, 7, 8, 0, 1, 2, 3, 29, 30, 31, 32]
