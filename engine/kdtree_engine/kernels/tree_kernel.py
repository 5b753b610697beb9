"""The Triton programs behind `tree`: one per request."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def build_kernel(
    LOGP,
    CANDIDATES,
    ROOT,
    TOKENS,
    DEPTH,
    RANK,
    PARENT,
    ANCESTORS,
    DEPTHS: tl.constexpr,
    WIDTH: tl.constexpr,
    BUDGET: tl.constexpr,
    SPINE: tl.constexpr,
    NODES: tl.constexpr,
):
    """Each node offers its next child; every turn takes the best offer. Offers of one node come in rank
    order, so ties fall to the shallower node, then to the earlier parent, then to the lower rank.
    """
    request = tl.program_id(0)
    LOGP += request * DEPTHS * WIDTH
    CANDIDATES += request * DEPTHS * WIDTH
    node = tl.arange(0, NODES)
    score = tl.zeros([NODES], tl.float32)
    depth = tl.zeros([NODES], tl.int32)
    rank = tl.full([NODES], -1, tl.int32)
    parent = tl.full([NODES], -1, tl.int32)
    offered = tl.zeros([NODES], tl.int32)  # the rank a node offers next
    count = 1
    while count < BUDGET:
        open_ = (node < count) & (depth < DEPTHS) & (offered < WIDTH)
        gain = tl.load(LOGP + depth * WIDTH + offered, mask=open_, other=0.0)
        gain = tl.where(
            gain == gain, tl.minimum(gain, 0.0), -float("inf")
        )  # as batched.build: no NaN, at most 0
        offer = tl.where(open_, score + gain, -float("inf"))
        best = tl.max(offer, 0)
        order = tl.where(open_ & (offer == best), depth * NODES + node, DEPTHS * NODES + NODES)
        if count <= SPINE:
            order = tl.where(node == count - 1, 0, DEPTHS * NODES + NODES)
        chosen = tl.argmin(order, 0)
        here = node == chosen
        chosen_rank = tl.sum(tl.where(here, offered, 0), 0)
        chosen_depth = tl.sum(tl.where(here, depth, 0), 0) + 1
        chosen_score = tl.sum(tl.where(here, score, 0.0), 0) + tl.sum(tl.where(here, gain, 0.0), 0)
        offered = tl.where(here, offered + 1, offered)
        new = node == count
        score = tl.where(new, chosen_score, score)
        depth = tl.where(new, chosen_depth, depth)
        rank = tl.where(new, chosen_rank, rank)
        parent = tl.where(new, chosen, parent)
        count += 1
    live = node < BUDGET
    place = request * BUDGET + node
    token = tl.load(CANDIDATES + (depth - 1) * WIDTH + rank, mask=live & (node > 0), other=0)
    tl.store(TOKENS + place, tl.where(node == 0, tl.load(ROOT + request).to(tl.int64), token), mask=live)
    tl.store(DEPTH + place, depth.to(tl.int64), mask=live)
    tl.store(RANK + place, rank.to(tl.int64), mask=live)
    tl.store(PARENT + place, parent.to(tl.int64), mask=live)
    row = ANCESTORS + (request * BUDGET + node[:, None]) * BUDGET + node[None, :]
    flags = node[:, None] == node[None, :]
    current = parent
    for _ in range(DEPTHS):
        flags = flags | (node[None, :] == current[:, None])
        above = tl.sum(tl.where(node[None, :] == current[:, None], parent[None, :], 0), 1)
        current = tl.where(current > 0, above, -1)
    tl.store(row, flags, mask=live[:, None] & live[None, :])


@triton.jit
def walk_kernel(
    TOKENS,
    DEPTH,
    PARENT,
    TARGET,
    PATH,
    COMMITTED,
    LENGTHS,
    DEEPEST,
    BONUS,
    SIZE: tl.constexpr,
    DEPTHS: tl.constexpr,
    NODES: tl.constexpr,
    STEPS: tl.constexpr,
):
    """From the root to the child that carries the target's choice, until there is none."""
    request = tl.program_id(0)
    node = tl.arange(0, NODES)
    live = node < SIZE
    token = tl.load(TOKENS + request * SIZE + node, mask=live, other=-1)
    depth = tl.load(DEPTH + request * SIZE + node, mask=live, other=0)
    parent = tl.load(PARENT + request * SIZE + node, mask=live, other=-2)
    target = tl.load(TARGET + request * SIZE + node, mask=live, other=0)
    step = tl.arange(0, STEPS)
    path = tl.where(step == 0, 0, -1)
    wanted = tl.sum(tl.where(node == 0, target, 0), 0)
    committed = tl.zeros([STEPS], tl.int64) + wanted
    current = 0
    length = 1
    for turn in range(1, DEPTHS + 1):
        child = tl.min(tl.where((parent == current) & (token == wanted), node, NODES), 0)
        found = (child < NODES) & (length == turn)
        if found:
            current = child
            length += 1
            wanted = tl.sum(tl.where(node == child, target, 0), 0)
            path = tl.where(step == turn, child, path)
            committed = tl.where(step == turn, wanted, committed)
    inside = step <= DEPTHS
    place = request * (DEPTHS + 1) + step
    tl.store(PATH + place, path.to(tl.int64), mask=inside)
    tl.store(COMMITTED + place, committed, mask=inside)
    tl.store(LENGTHS + request, length)
    tl.store(DEEPEST + request, tl.sum(tl.where(node == current, depth, 0), 0))
    tl.store(BONUS + request, wanted)
