"""Ranks with clocks of their own choose the same widths, by the times of the first of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kdtree_engine.agreed import EVERY, AgreedPolicy, Exchange
from kdtree_engine.policy import Choice, Policy
from test_policy import BLOCK, MACHINES, TEXTS, WIDTHS, simulate

pytestmark = pytest.mark.unit


@dataclass
class Ranks:
    """Stands in for a group whose first rank acts before the others. sent: what it gave at each exchange."""

    count: int
    sent: list[list[float]] = field(default_factory=list)

    def exchanges(self) -> list[Exchange]:
        def first(own: Sequence[float]) -> list[float]:
            self.sent.append(list(own))
            return self.sent[-1]

        def other() -> Exchange:
            taken = iter(self.sent)  # grows while it is read; raises when a rank exchanges alone

            def take(own: Sequence[float]) -> list[float]:
                given_ = next(taken)
                assert len(given_) == len(own)
                return given_

            return take

        return [first, *(other() for _ in range(1, self.count))]


@given(st.data(), st.integers(2, 4), st.integers(0, 10**6), st.integers(0, 2))
@settings(deadline=None, max_examples=40)
def test_ranks_choose_alike_whatever_their_clocks_say(
    data: st.DataObject, count: int, seed: int, late: int
) -> None:
    """late: steps under way when the next is chosen. Contexts, batches and prefills come as they like."""
    rng, group = random.Random(seed), Ranks(count)
    policies = [AgreedPolicy(WIDTHS, BLOCK, exchange) for exchange in group.exchanges()]
    skews = data.draw(st.lists(st.floats(0.01, 100), min_size=count, max_size=count))
    way: list[tuple[list[Choice], bool, list[float]]] = []
    context, batch = 100, 1
    for _ in range(400):
        if rng.random() < 0.05:
            context, batch = rng.randrange(1, 100_000), rng.randrange(1, 20)
        chosen = [policy.choose(context, batch) for policy in policies]
        assert chosen == [chosen[0]] * count
        index = WIDTHS.index(chosen[0].rows)
        commits = sorted(rng.uniform(1, BLOCK) for _ in WIDTHS)[: index + 1]
        way.append((chosen, rng.random() < 0.1, commits))
        if len(way) <= late:
            continue
        done, mixed, told = way.pop(0)
        for policy, choice, skew in zip(policies, done, skews, strict=True):
            measured = skew * (5 + 0.1 * choice.rows) * rng.uniform(0.5, 2)
            policy.observe(choice, None if mixed else measured, told)
    assert 400 / EVERY - 1 <= len(group.sent) < 400


def test_ranks_that_go_by_their_own_clocks_part() -> None:
    """What the exchange is for."""
    fast, slow = Policy(WIDTHS, BLOCK), Policy(WIDTHS, BLOCK)
    chosen = []
    for _ in range(200):
        pair = fast.choose(100, 1), slow.choose(100, 1)
        chosen.append(pair)
        for policy, choice, cost in zip((fast, slow), pair, (0.0, 5.0), strict=True):
            policy.observe(
                choice, 5 + cost * choice.rows, [1.0, 2.0, 2.5, 2.7][: WIDTHS.index(choice.rows) + 1]
            )
    assert any(left.rows != right.rows for left, right in chosen)


def test_in_a_steady_state_one_exchange_serves_many_steps() -> None:
    group = Ranks(1)
    policy = AgreedPolicy(WIDTHS, BLOCK, group.exchanges()[0])
    for step in range(2000):
        choice = policy.choose(100, 1)
        policy.observe(choice, 5.0 + 0.1 * choice.rows, [1.0] * (WIDTHS.index(choice.rows) + 1))
        if step == 1000:
            calibrated = len(group.sent)
    assert len(group.sent) - calibrated < 1000 / EVERY * 3


@pytest.mark.parametrize("context", [100, 60_000])
@pytest.mark.parametrize("text", TEXTS)
def test_times_that_come_late_cost_little(text: str, context: int) -> None:
    policy = AgreedPolicy(WIDTHS, BLOCK, lambda own: own)
    assert simulate(MACHINES["dear rows"], TEXTS[text], context, policy=policy).against(1, BLOCK) > 0.97
