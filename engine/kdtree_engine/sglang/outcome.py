"""What a verified step hands on: tokens to the scheduler, places to the KV cache, features to the drafter."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kdtree_engine.batched import BatchedWalk


@dataclass(frozen=True)
class Outcome:
    """b requests of N rows, paths of at most L = min(D + 1, N) nodes.

    tokens: [b, N], the committed tokens first. numbers: [3, b], commit lengths, last tokens, new prefix
    lengths. source, target: [b, L] KV places of the accepted nodes now and at the window's front; both are
    place 0, which nobody reads, for a node that stays where it is and past a path's end. hidden: [b * L, h],
    the accepted nodes' features.
    """

    tokens: torch.Tensor
    numbers: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor
    hidden: torch.Tensor

    def first(self, requests: int) -> Outcome:
        """The first of the requests (views)."""
        return Outcome(
            tokens=self.tokens[:requests],
            numbers=self.numbers[:, :requests],
            source=self.source[:requests],
            target=self.target[:requests],
            hidden=self.hidden[: requests * self.source.shape[1]],
        )

    def room(self, requests: int) -> Outcome:
        """Zeros for so many requests of this kind."""
        length = self.source.shape[1]
        return Outcome(
            tokens=self.tokens.new_zeros(requests, self.tokens.shape[1]),
            numbers=self.numbers.new_zeros(len(self.numbers), requests),
            source=self.source.new_zeros(requests, length),
            target=self.target.new_zeros(requests, length),
            hidden=self.hidden.new_zeros(requests * length, self.hidden.shape[1]),
        )


def settle(
    walked: BatchedWalk, prefix_lens: torch.Tensor, cache_loc: torch.Tensor, hidden: torch.Tensor, size: int
) -> Outcome:
    """cache_loc: [b * N] KV places of the window; hidden: [b * N, h]; size: N. On the device alone, so it can
    be captured.
    """
    path = walked.path[:, :size]
    batch, length = path.shape
    stays = (path < 0) | (path == torch.arange(length, device=path.device))
    window = torch.arange(batch, device=path.device)[:, None] * size
    rows = path.clamp(min=0) + window
    front = cache_loc.view(batch, size)[:, :length]
    return Outcome(
        tokens=torch.nn.functional.pad(walked.committed[:, :length], (0, size - length)),
        numbers=torch.stack([walked.lengths, walked.bonus, prefix_lens.to(torch.int64) + walked.lengths]),
        source=cache_loc[rows].masked_fill(stays, 0),
        target=front.masked_fill(stays, 0),
        hidden=hidden.view(batch * size, -1)[rows.flatten()],
    )
