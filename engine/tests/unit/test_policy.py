"""The choice of the verify width: never a losing one, steady under noise, close to the better of chain and
plain decoding on synthetic text."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdtree_engine.policy import HYSTERESIS, Cell, Choice, Policy, Reason, candidate_widths, pick

pytestmark = pytest.mark.unit

BLOCK = 8
WIDTHS = (1, 8, 16, 32)
RATES = st.lists(st.floats(0.01, 1e4), min_size=2, max_size=5)


@given(RATES, st.data())
def test_a_choice_loses_at_most_the_hysteresis_to_any_other(rates: list[float], data: st.DataObject) -> None:
    current = data.draw(st.integers(0, len(rates) - 1))
    assert rates[pick(rates, current)] * (1 + HYSTERESIS) >= max(rates)


@given(RATES, st.data())
def test_a_width_that_gets_dearer_is_never_chosen_for_it(rates: list[float], data: st.DataObject) -> None:
    current = data.draw(st.integers(0, len(rates) - 1))
    dearer = data.draw(st.integers(0, len(rates) - 1))
    before = pick(rates, current)
    slower = [rate / 1.5 if index == dearer else rate for index, rate in enumerate(rates)]
    assert pick(slower, current) != dearer or before == dearer


@given(RATES, st.data())
def test_a_choice_stays_once_taken(rates: list[float], data: st.DataObject) -> None:
    chosen = pick(rates, data.draw(st.integers(0, len(rates) - 1)))
    assert pick(rates, chosen) == chosen


def test_widths_are_plain_one_block_and_its_doublings() -> None:
    assert candidate_widths(8, 256) == (1, 8, 16, 32)
    assert candidate_widths(8, 20) == (1, 8, 16, 20)
    assert candidate_widths(4, 4) == (1, 4)


@given(st.integers(0, 10**6), st.integers(0, 4096))
def test_cells_rise_with_context_and_batch(context: int, batch: int) -> None:
    cell, longer, more = Cell.of(context, batch), Cell.of(2 * context, batch), Cell.of(context, batch + 1)
    assert cell.context <= longer.context <= cell.context + 2
    assert cell.batch <= more.batch


@dataclass
class Text:
    """A synthetic workload. spine: chance that the drafter's best token is right; sibling: that a branch of
    the tree saves a miss, for each doubling of the rows beyond a block."""

    spine: float
    sibling: float

    def commits(self, rng: random.Random) -> list[float]:
        """One request's commit length at every width; wider ones only ever add to it."""
        found = [1.0]
        for doublings in range(len(WIDTHS) - 1):
            found.append(found[-1] if doublings else 1.0)
            reach = rng.random() < self.sibling if doublings else True
            while reach and found[-1] < BLOCK and rng.random() < self.spine:
                found[-1] += 1
        return found


@dataclass
class Machine:
    """Step times in ms: a constant, a slope per row, and attention over the context that a verify step pays
    `unsplit` times as often as plain decoding. noise: relative; stalls: share of steps that take 5 times;
    drift: relative, of the whole machine's speed over some 60 steps, as beside other load.
    """

    constant: float = 5.0
    per_row: float = 0.01
    context_ms: float = 0.1  # per 1,000 tokens in plain decoding
    unsplit: float = 4.0
    draft: float = 1.0
    noise: float = 0.03
    stalls: float = 0.01
    drift: float = 0.0
    slowed: float = field(default=0.0, init=False)

    def true(self, rows: int, context: int) -> float:
        attention = self.context_ms * context / 1000 * (1 if rows == 1 else self.unsplit)
        return self.constant + self.per_row * rows + attention + (self.draft if rows > 1 else 0)

    def measured(self, rows: int, context: int, rng: random.Random) -> float:
        stall = 5 if rng.random() < self.stalls else 1
        kept = math.exp(-1 / 60)
        self.slowed = kept * self.slowed + rng.gauss(0, self.drift) * math.sqrt(1 - kept**2)
        speed = stall * math.exp(self.slowed)
        return max(0.1, self.true(rows, context) * rng.gauss(1, self.noise)) * speed


@dataclass
class Run:
    tokens: float
    milliseconds: float
    chosen: list[Choice]
    fixed: dict[int, float]  # ms per token had every step been of this width

    def against(self, *widths: int) -> float:
        """Tokens per second over the best of these fixed widths."""
        return self.tokens / self.milliseconds * min(self.fixed[rows] for rows in widths)


def simulate(
    machine: Machine,
    text: Text,
    context: int,
    *,
    tokens: int = 5000,
    seed: int = 0,
    policy: Policy | None = None,
) -> Run:
    """One request at a time, results one step late; true times count, noisy ones are what the policy sees."""
    rng = random.Random(seed)
    policy = policy or Policy(WIDTHS, BLOCK)
    run = Run(0, 0, [], {})
    late: tuple[Choice, float, list[float]] | None = None
    sums = {rows: [0.0, 0.0] for rows in WIDTHS}
    while run.tokens < tokens:
        length = context + int(run.tokens)
        choice = policy.choose(length, 1)
        commits = text.commits(rng)
        if late is not None:
            policy.observe(late[0], late[1] / 1000, late[2])
        index = WIDTHS.index(choice.rows)
        late = (choice, machine.measured(choice.rows, length, rng), commits[: index + 1])
        run.tokens += commits[index]
        run.milliseconds += machine.true(choice.rows, length)
        run.chosen.append(choice)
        for rows, commit in zip(WIDTHS, commits, strict=True):
            sums[rows][0] += machine.true(rows, length)
            sums[rows][1] += commit
    run.fixed = {rows: spent / done for rows, (spent, done) in sums.items()}
    return run


TEXTS = {
    "repetitive": Text(0.97, 0.1),
    "prose": Text(0.6, 0.3),
    "code": Text(0.8, 0.4),
    "reasoning": Text(0.35, 0.3),
    "hopeless": Text(0.02, 0.02),
}
MACHINES = {
    "cheap rows": Machine(per_row=0.005),
    "dear rows": Machine(per_row=0.3),
    "slow drafter": Machine(draft=8.0),
    "noisy": Machine(noise=0.2, stalls=0.05),
    "drifting": Machine(per_row=0.005, drift=0.25),
}


@pytest.mark.parametrize("context", [100, 60_000])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("text", TEXTS)
def test_never_much_slower_than_chain_or_plain_decoding(text: str, machine: str, context: int) -> None:
    assert simulate(replace(MACHINES[machine]), TEXTS[text], context).against(1, BLOCK) > 0.97


@pytest.mark.parametrize("text", TEXTS)
def test_close_to_the_best_fixed_width(text: str) -> None:
    assert simulate(MACHINES["cheap rows"], TEXTS[text], 2000).against(*WIDTHS) > 0.96


def test_past_the_break_even_length_it_decodes_plainly_and_says_why() -> None:
    run = simulate(Machine(unsplit=40), TEXTS["prose"], 100_000)
    last = run.chosen[-300:]
    assert sum(choice.rows == 1 for choice in last) > 280
    assert {choice.reason for choice in last} <= {Reason.FASTEST, Reason.KEPT, Reason.PROBE}


def test_even_rates_do_not_make_it_flap() -> None:
    """Two widths that cost and bring the same: noise alone must not move it back and forth."""
    run = simulate(Machine(per_row=0.0, noise=0.05, context_ms=0.0), Text(0.7, 0.0), 2000, tokens=10_000)
    settled = [choice.rows for choice in run.chosen[100:] if choice.reason in (Reason.FASTEST, Reason.KEPT)]
    switches = sum(left != right for left, right in itertools.pairwise(settled))
    assert switches <= len(settled) / 20


def test_a_text_that_turns_good_is_noticed_from_plain_decoding() -> None:
    rng = random.Random(1)
    policy, machine = Policy(WIDTHS, BLOCK), Machine(draft=5.0)
    rows = []
    for step in range(3000):
        text = TEXTS["hopeless"] if step < 1000 else TEXTS["repetitive"]
        choice = policy.choose(2000, 1)
        index = WIDTHS.index(choice.rows)
        policy.observe(choice, machine.measured(choice.rows, 2000, rng), text.commits(rng)[: index + 1])
        rows.append(choice.rows)
    assert rows[900:1000].count(1) > 90
    assert rows[2000:].count(1) < 50
