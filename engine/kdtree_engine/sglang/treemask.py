"""Where the target's attention finds the tree mask.

SGLang's flat verify mask (TreeMaskMode.FULL_MASK) has, for each request, N rows of prefix + N columns.
Its Triton kernel reads the last N columns of a row only (extend_attention.py, SKIP_PREFIX_CUSTOM_MASK),
so on a GPU only those N x N cells are ever written, at places computed on the device. torch_native on a
CPU reads the whole mask.
"""

from __future__ import annotations

from typing import Any

import torch


def full_mask(ancestors: torch.Tensor, prefix_lens: torch.Tensor, prefix_sum: int) -> torch.Tensor:
    """The whole flat mask, bool: True where a row may attend.

    ancestors: [b, N, N] bool; prefix_lens: [b]; prefix_sum: their sum, an int.
    """
    batch, size, _ = ancestors.shape
    device = ancestors.device
    widths = (prefix_lens + size).repeat_interleave(size)
    row = torch.repeat_interleave(
        torch.arange(batch * size, device=device), widths, output_size=size * (prefix_sum + size * batch)
    )
    start = (widths.cumsum(0) - widths + prefix_lens.repeat_interleave(size))[row]
    column = torch.arange(len(row), device=device) - start
    return (column < 0) | ancestors.flatten(0, 1)[row, column.clamp(min=0)]


def write_tree(
    mask: torch.Tensor, start: torch.Tensor, prefix_lens: torch.Tensor, ancestors: torch.Tensor
) -> None:
    """Write the N x N part of each request into a flat mask; the cells over the prefix stay as they are.

    mask: uint8; start: [b], where each request begins in it; prefix_lens: [b]; ancestors: [b, N, N] bool.
    No host round trip, so it can be captured.
    """
    size = ancestors.shape[1]
    node = torch.arange(size, device=mask.device)
    prefix = prefix_lens.to(torch.int64)[:, None, None]
    place = start.to(torch.int64)[:, None, None] + node[:, None] * (prefix + size) + prefix + node
    mask.scatter_(0, place.flatten(), ancestors.flatten().to(mask.dtype))


def capture_with_mask(spec_info: Any, runner: Any, _num_tokens: int) -> Any:
    """After DecodeCudaGraphRunner.get_spec_info: capture DDTREE's target with a tree mask.

    SGLang captures the DFLASH family without one. An empty mask is enough: the Triton backend then
    captures its own static buffer (_build_cuda_graph_forward_metadata) and copies nothing into it on
    replay.
    """
    model_runner = runner.model_runner
    if spec_info is not None and is_ddtree(model_runner.spec_algorithm) and not model_runner.is_draft_worker:
        spec_info.custom_mask = torch.empty(0, dtype=torch.uint8, device=model_runner.device)
    return spec_info


def is_ddtree(algorithm: Any) -> bool:
    """Whether this is the algorithm that `registration` adds."""
    return bool(getattr(algorithm, "takes_tree_mask", False))


def write_captured(runner: Any, forward_batch: Any, ancestors: torch.Tensor) -> None:
    """Inside the target's graph, before the model: the tree into the backend's static mask.

    Raises RuntimeError at capture when the backend made no mask of that layout: a graph without one would
    change the tokens.
    """
    metadata = runner.attn_backend.forward_metadata
    mask = runner.attn_backend.verify_mask
    if metadata.custom_mask is None or mask is None or mask.mode.name != "FULL_MASK":
        raise RuntimeError("the target's graph was captured without a tree mask")
    bs = forward_batch.batch_size
    write_tree(metadata.custom_mask, metadata.mask_indptr[:bs], forward_batch.seq_lens[:bs], ancestors[:bs])


def eager_mask(prefix_lens: torch.Tensor, prefix_bound: int, ancestors: torch.Tensor) -> torch.Tensor:
    """The flat mask of an eager verify on a GPU, uint8, for SGLang's spec_info: its eager runner plans every
    verify anew from there. The cells over the prefix are not written.

    prefix_lens: [b]; prefix_bound: the host's bound on their sum; ancestors: [b, N, N] bool.
    """
    batch, size, _ = ancestors.shape
    cells = size * (prefix_lens + size)
    mask = torch.empty(size * (prefix_bound + size * batch), dtype=torch.uint8, device=ancestors.device)
    write_tree(mask, cells.cumsum(0) - cells, prefix_lens, ancestors)
    return mask
