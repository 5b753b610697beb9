"""Whole generations on a stub target: random drafters, stops that cut inside accepted paths, aborts."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kdtree_engine import batched
from kdtree_engine.options import Options
from kdtree_engine.sglang.outcome import settle
from kdtree_engine.sglang.stepcounts import StepCounts
from kdtree_engine.sglang.verify import Verified, commit
from kdtree_engine.sglang.window import Window

VOCABULARY, ROOM = 5, 80


def next_token(prefix: list[int]) -> int:
    """The stub target: a fixed function of all tokens so far."""
    value = 7
    for token in prefix[-6:]:
        value = (value * 31 + token * 17 + len(prefix)) % 1009
    return value % VOCABULARY


def feature(prefix: list[int]) -> float:
    """What the target's hidden state of the last token of `prefix` stands for."""
    value = 1
    for token in prefix:
        value = (value * 33 + token + 1) % 16777213
    return float(value)


@dataclass
class Pool:
    """KV places; each holds the feature of the token written there."""

    kv: torch.Tensor

    def get_kvcache(self) -> Pool:
        return self

    def move_kv_cache(self, target: torch.Tensor, source: torch.Tensor) -> None:
        self.kv[target] = self.kv[source]


@dataclass
class Request:
    """tokens: prompt and output; the last one is not in the KV cache yet. region: its first KV place."""

    prompt: list[int]
    region: int
    length: int
    abort_after: int
    tokens: list[int] = field(default_factory=list)
    steps: int = 0
    cut: int = 0

    @property
    def output(self) -> list[int]:
        return self.tokens[len(self.prompt) :]

    @property
    def over(self) -> bool:
        return len(self.output) >= self.length or self.steps >= self.abort_after


class Engine:
    """A step as the worker takes it, with the real tree, walk, counts and commit."""

    def __init__(self, options: Options, requests: list[Request]) -> None:
        self.options, self.requests = options, requests
        self.target = Pool(torch.zeros(ROOM * len(requests) + 1))
        self.draft = torch.zeros_like(self.target.kv)
        self.counts = StepCounts(options, "cpu", leads=True)
        self.model_runner = SimpleNamespace(token_to_kv_pool_allocator=self.target)
        for request in requests:
            for place in range(len(request.prompt)):
                at = request.region + place
                self.target.kv[at] = self.draft[at] = feature(request.prompt[: place + 1])
            request.tokens = [*request.prompt, next_token(request.prompt)]

    def _draft_write_ids(self, plan: torch.Tensor) -> torch.Tensor:
        return plan

    def _append_target_hidden_to_draft_kv_by_loc(self, **write: Any) -> None:
        rows = write["target_hidden"].view(*write["cache_loc_2d"].shape)
        for row, places, count in zip(rows, write["cache_loc_2d"], write["commit_lens"], strict=True):
            self.draft[places[:count]] = row[:count]

    def step(self, running: list[Request]) -> None:
        size, depths, width = self.options.budget, self.options.depths, self.options.topk_cap
        logp = torch.log_softmax(2 * torch.randn(len(running), depths, VOCABULARY), -1).topk(width, -1)
        root = torch.tensor([request.tokens[-1] for request in running])
        tree = batched.build(logp.values, logp.indices, root, size, keep_spine=self.options.keep_spine)
        lens = torch.tensor([len(request.tokens) - 1 for request in running])
        places = torch.stack(
            [request.region + int(n) + torch.arange(size) for request, n in zip(running, lens, strict=True)]
        )
        choice = torch.empty(len(running), size, dtype=torch.int64)
        hidden = torch.empty(len(running), size)
        for row, request in enumerate(running):
            for node in range(size):
                line = tree.ancestors[row, node].nonzero().flatten()
                line = line[tree.depth[row, line].argsort()]
                prefix = request.tokens[:-1] + tree.tokens[row, line].tolist()
                choice[row, node], hidden[row, node] = next_token(prefix), feature(prefix)
        self.target.kv[places] = hidden
        walked = batched.walk(tree, choice, depths)
        records = self.counts.records(tree, walked)
        self.counts.add(records)
        output = SimpleNamespace(logits_output=SimpleNamespace(hidden_states=hidden.view(-1, 1)))
        outcome = settle(walked, lens, places.flatten(), hidden.view(-1, 1), size)
        positions = lens[:, None] + torch.arange(size)
        window = Window(choice, positions, places.flatten(), places.flatten(), lens, lens)
        verified = Verified(choice, walked, records, outcome, output)
        batch = SimpleNamespace(return_logprob=False)
        commit(self, batch, window, verified, outcome.numbers[0].to(torch.int32))
        assert outcome.numbers[2].tolist() == (lens + walked.lengths).tolist()
        for row, request in enumerate(running):
            committed = walked.committed[row, : walked.lengths[row]].tolist()
            room = request.length - len(request.output)
            request.cut += max(0, len(committed) - room)
            request.tokens += committed[:room]
            request.steps += 1

    def check_caches(self, request: Request) -> None:
        """Everything before the last token lies in both caches, in order."""
        count = len(request.tokens) - 1
        expected = [feature(request.tokens[: place + 1]) for place in range(count)]
        for kv in (self.target.kv, self.draft):
            assert kv[request.region : request.region + count].tolist() == expected


@given(
    st.integers(0, 10_000),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 24), st.integers(1, 14)), min_size=1, max_size=4),
    st.integers(2, 5),
    st.integers(1, 3),
    st.integers(0, 12),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_generations_are_the_targets_own_whatever_is_drafted_cut_or_aborted(
    seed: int, shapes: list[tuple[int, int, int]], block: int, width: int, extra: int, spine: bool
) -> None:
    torch.manual_seed(seed)
    largest = sum(width**depth for depth in range(block))
    options = Options(block, min(block + extra, largest), width, keep_spine=spine)
    requests = [
        Request([(seed + i) % VOCABULARY for i in range(prompt)], ROOM * number, length, abort)
        for number, (prompt, length, abort) in enumerate(shapes)
    ]
    engine = Engine(options, requests)
    committed = 0
    while running := [request for request in requests if not request.over]:
        engine.step(running)
        for request in running:
            engine.check_caches(request)
    for request in requests:
        expected = list(request.prompt)
        while len(expected) < len(request.tokens):
            expected.append(next_token(expected))
        assert request.tokens == expected
        committed += len(request.output) - 1 + request.cut
    totals = engine.counts.totals()
    assert totals.violations() == ()
    assert totals.steps == sum(request.steps for request in requests)
    assert totals.committed == committed
