"""The head's kernels against torch, under Triton's interpreter where there is no GPU."""

from __future__ import annotations

import pytest
import torch
from kdtree_engine.kernels import best_tokens as kernels

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("vocabulary", [8, kernels.PART, 3 * kernels.PART + 5])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_best_tokens_are_torchs(vocabulary: int, width: int, kind: torch.dtype) -> None:
    torch.manual_seed(vocabulary + width)
    logits = (5 * torch.randn(3, vocabulary + 7)).to(kind).to(DEVICE)[:, :vocabulary]
    values, tokens, norm = kernels.best_tokens(logits, width)
    exact = logits.float()
    expected = exact.sort(dim=-1, descending=True, stable=True)  # equal values by token
    assert tokens.tolist() == expected.indices[:, :width].tolist()
    assert values.tolist() == expected.values[:, :width].tolist()
    torch.testing.assert_close(norm, exact.logsumexp(-1, keepdim=True))


def test_a_drafter_that_overflows_still_gives_tokens() -> None:
    logits = torch.full((2, 20), float("nan"), device=DEVICE)
    logits[1, 7], logits[1, 3] = 1.0, float("-inf")
    values, tokens, norm = kernels.best_tokens(logits, 3)
    assert tokens.tolist() == [[0, 1, 2], [7, 0, 1]]
    assert values[1, 0] == 1.0
    assert norm[1, 0] == 1.0
    assert not torch.isnan(norm[1]).any()
