"""The tree and the walk for a whole batch, in torch operations on the device: no host round trip.

Same definitions as `tree.best_first` and `accept.walk`, and tested against them. Instead of a heap, prefixes
are extended level by level: a prefix among the best N - 1 has all its ancestors among them, so N - 1 per
level suffice."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kdtree_engine.tree import max_nodes


@dataclass(frozen=True)
class BatchedTree:
    """b requests, N nodes each; all on the device.

    tokens, depth, rank, parent: [b, N] int64 (root: depth 0, rank and parent -1). ancestors: [b, N, N] bool,
    row i true at node i and its ancestors.
    """

    tokens: torch.Tensor
    depth: torch.Tensor
    rank: torch.Tensor
    parent: torch.Tensor
    ancestors: torch.Tensor

    @property
    def size(self) -> int:
        """Nodes of a tree."""
        return int(self.tokens.shape[1])

    def first(self, size: int) -> BatchedTree:
        """The best-first trees of `size` nodes that these larger ones begin with (views)."""
        return BatchedTree(
            tokens=self.tokens[:, :size],
            depth=self.depth[:, :size],
            rank=self.rank[:, :size],
            parent=self.parent[:, :size],
            ancestors=self.ancestors[:, :size, :size],
        )

    def next_token(self) -> torch.Tensor:
        """[b, N] int64: first child of each node, -1 for a leaf."""
        size = self.parent.shape[1]
        nodes = torch.arange(size, device=self.parent.device)
        return _first_true(self.parent[:, None, :] == nodes[None, :, None])

    def next_sibling(self) -> torch.Tensor:
        """[b, N] int64: the next node with the same parent, -1 for the last one."""
        size = self.parent.shape[1]
        nodes = torch.arange(size, device=self.parent.device)
        later = nodes[None, None, :] > nodes[None, :, None]
        return _first_true((self.parent[:, :, None] == self.parent[:, None, :]) & later)


def root_only(root: torch.Tensor) -> BatchedTree:
    """Trees of one node: what plain decoding verifies. root: [b] token ids."""
    depth = torch.zeros_like(root, dtype=torch.int64)[:, None]
    return BatchedTree(
        tokens=root.to(torch.int64)[:, None],
        depth=depth,
        rank=depth - 1,
        parent=depth - 1,
        ancestors=torch.ones_like(depth, dtype=torch.bool)[:, :, None],
    )


@dataclass(frozen=True)
class BatchedWalk:
    """path: [b, D + 1] node indices from the root down, -1 after the end. lengths: [b] commit lengths
    (drafts + bonus).

    depth: [b] deepest accepted node. committed: [b, D + 1], the first `lengths` entries of a row are its
    tokens. bonus: [b], the last of them. All int64.
    """

    path: torch.Tensor
    lengths: torch.Tensor
    depth: torch.Tensor
    committed: torch.Tensor
    bonus: torch.Tensor

    def stopped_at_root(self, rows: torch.Tensor) -> BatchedWalk:
        """The same walk, but the requests flagged in `rows` ([b] bool) accept no draft: one token, the
        root's.
        """
        below = torch.arange(self.path.shape[1], device=self.path.device) > 0
        return BatchedWalk(
            path=self.path.masked_fill(rows[:, None] & below, -1),
            lengths=self.lengths.masked_fill(rows, 1),
            depth=self.depth.masked_fill(rows, 0),
            committed=self.committed,
            bonus=torch.where(rows, self.committed[:, 0], self.bonus),
        )


def build(
    logp: torch.Tensor, candidates: torch.Tensor, root: torch.Tensor, budget: int, *, keep_spine: bool = False
) -> BatchedTree:
    """Build one tree per request.

    logp, candidates: [b, D, K] log-probabilities (each position sorted from the best down) and token ids.
    root: [b] token ids. budget: nodes per tree, root included. Raises ValueError for a budget that no such
    tree can have."""
    batch, depths, width = logp.shape
    limit = max_nodes(depths, width)
    if not 1 <= budget <= limit:
        raise ValueError(f"a tree of this depth and width has 1 to {limit} nodes, not {budget}")
    device = logp.device
    # A drafter that overflows must not break the order: lossless is decided by the target, not by these
    # values.
    logp = logp.nan_to_num(nan=-torch.inf, posinf=0.0).clamp(max=0.0)

    levels: list[
        tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    ] = []  # score, rank, parent's place in all levels
    score = logp.new_zeros(batch, 1)
    parent_base, place = -1, 0
    for position in range(depths):
        scores = (score[:, :, None] + logp[:, None, position, :]).flatten(1)
        order = scores.sort(dim=1, descending=True, stable=True)
        kept = order.indices[:, : min(budget - 1, scores.shape[1])]
        score = order.values[:, : kept.shape[1]]
        levels.append((score, kept % width, kept // width + parent_base))
        parent_base, place = place, place + kept.shape[1]

    every_score = torch.cat([level[0] for level in levels], 1)
    every_rank = torch.cat([level[1] for level in levels], 1)
    every_parent = torch.cat([level[2] for level in levels], 1)
    widths = [level[0].shape[1] for level in levels]
    every_depth = torch.cat(  # fills, not a copy from the host: this runs inside CUDA graphs too
        [torch.full((batch, count), depth, device=device) for depth, count in enumerate(widths, 1)], 1
    )
    if keep_spine and budget > 1:
        every_score = every_score.clone()
        for level in range(depths):
            every_score[:, sum(widths[:level])] = torch.inf  # the best of a level is the spine's node

    chosen = every_score.sort(dim=1, descending=True, stable=True).indices[:, : budget - 1]
    position_of = torch.zeros_like(every_rank).scatter_(
        1, chosen, torch.arange(1, budget, device=device).expand(batch, -1)
    )
    place_of_parent = every_parent.gather(1, chosen)
    parent = torch.where(place_of_parent < 0, 0, position_of.gather(1, place_of_parent.clamp(min=0)))
    depth = every_depth.gather(1, chosen)
    rank = every_rank.gather(1, chosen)
    tokens = candidates.flatten(1).gather(1, (depth - 1) * width + rank)

    minus_one = parent.new_full((batch, 1), -1)
    parent = torch.cat([minus_one, parent], 1)
    return BatchedTree(
        tokens=torch.cat([root.to(tokens.dtype)[:, None], tokens], 1),
        depth=torch.cat([depth.new_zeros(batch, 1), depth], 1),
        rank=torch.cat([minus_one, rank], 1),
        parent=parent,
        ancestors=_ancestors(parent, depths),
    )


def walk(tree: BatchedTree, target: torch.Tensor, depths: int) -> BatchedWalk:
    """Follow the target through every tree of the batch.

    target: [b, N] int64, the target's choice after each node. depths: draft positions D, the longest
    possible path. A node is accepted when it and all its ancestors carry their parent's choice; siblings
    carry different tokens, so the accepted nodes of a tree form one path.
    """
    agrees = tree.tokens == target.gather(1, tree.parent.clamp(min=0))
    agrees[:, 0] = True
    accepted = ~(tree.ancestors & ~agrees[:, None, :]).any(2)
    path, lengths = _path(tree, accepted, depths), accepted.sum(1)
    committed = target.gather(1, path.clamp(min=0))
    return BatchedWalk(
        path=path,
        lengths=lengths,
        depth=(tree.depth * accepted).amax(1),
        committed=committed,
        bonus=committed.gather(1, lengths[:, None] - 1)[:, 0],
    )


def forced_walk(tree: BatchedTree, target: torch.Tensor, depths: int, length: int) -> BatchedWalk:
    """The walk of a benchmark that fixes the commit length: along the drafter's best candidates, whatever the
    target chose, and the target's choice after the last of them.

    length: tokens to commit, 1 to depths + 1; fewer where the tree holds less of that chain.
    """
    off_chain = (tree.ancestors & (tree.rank > 0)[:, None, :]).any(2)
    accepted = ~off_chain & (tree.depth < length)
    path, lengths = _path(tree, accepted, depths), accepted.sum(1)
    bonus = target.gather(1, path.gather(1, lengths[:, None] - 1))[:, 0]
    after = torch.nn.functional.pad(path[:, 1:], (0, 1), value=-1)
    committed = torch.where(after < 0, bonus[:, None], tree.tokens.gather(1, after.clamp(min=0)))
    return BatchedWalk(path, lengths, (tree.depth * accepted).amax(1), committed, bonus)


def _path(tree: BatchedTree, accepted: torch.Tensor, depths: int) -> torch.Tensor:
    """The accepted nodes ([b, N] bool, one of each depth at most) in order of depth: [b, D + 1], -1 after."""
    nodes = torch.arange(tree.size, device=accepted.device).expand_as(tree.tokens)
    column = torch.where(accepted, tree.depth, depths + 1)
    return nodes.new_full((len(nodes), depths + 2), -1).scatter_(1, column, nodes)[:, : depths + 1]


def _ancestors(parent: torch.Tensor, depths: int) -> torch.Tensor:
    batch, size = parent.shape
    mask = torch.eye(size, dtype=torch.bool, device=parent.device).repeat(batch, 1, 1)
    current = parent
    for _ in range(depths):
        current = current.clamp(min=0)  # the root is everyone's ancestor, so climbing past it changes nothing
        mask.scatter_(2, current[:, :, None], True)
        current = parent.gather(1, current)
    return mask


def _first_true(flags: torch.Tensor) -> torch.Tensor:
    return torch.where(flags.any(2), flags.to(torch.int8).argmax(2), -1)
