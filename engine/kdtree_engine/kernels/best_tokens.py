"""The best tokens of each row of logits and their normaliser in two Triton launches.

torch.topk and logsumexp over a vocabulary read it several times; here it is read once, in parts.
"""

from __future__ import annotations

import torch
import triton

from kdtree_engine.kernels.best_tokens_kernel import parts_kernel, whole_kernel

PART = 2048
WIDEST = 32  # candidates; each costs one more reduction over a part


def best_tokens(logits: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """logits: [r, V], any float type, rows contiguous; 1 <= width <= min(V, WIDEST).

    Values [r, width] from the best down, equal ones by token; their tokens [r, width] int64; the rows' log of
    summed exponentials [r, 1]. NaN counts as minus infinity.
    """
    rows, vocabulary = logits.shape
    parts = triton.cdiv(vocabulary, PART)
    shape, device = (rows, parts * width), logits.device
    values = torch.empty(shape, dtype=torch.float32, device=device)
    tokens = torch.empty(shape, dtype=torch.int64, device=device)
    norms = torch.empty(rows, parts, dtype=torch.float32, device=device)
    parts_kernel[(rows, parts)](
        logits, values, tokens, norms, vocabulary, logits.stride(0), WIDTH=width, SIZE=PART, num_warps=8
    )
    best = torch.empty(rows, width, dtype=torch.float32, device=device)
    ids = torch.empty(rows, width, dtype=torch.int64, device=device)
    norm = torch.empty(rows, 1, dtype=torch.float32, device=device)
    whole_kernel[(rows,)](
        values,
        tokens,
        norms,
        best,
        ids,
        norm,
        parts,
        WIDTH=width,
        FOUND=triton.next_power_of_2(parts * width),
        HELD=triton.next_power_of_2(parts),
        num_warps=4,
    )
    return best, ids, norm
