"""Which verify width pays best now, from measured step times and from what each width would have committed.

A best-first tree of N rows is the first N rows of every larger one, so one walk tells what each narrower
width would have committed (`commits` below). Width 1 is plain decoding: no draft, one token. The rate of a
width is its expected commit length divided by its step time at this context and batch size."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

HYSTERESIS = 0.02  # a width must be this much faster to replace the current one
PROBE_SHARE = 0.01  # of the time may go into trying other widths
MEMORY_STEPS = 48  # over which commit lengths are averaged
PROBE_WEIGHT = 0.15  # of one observation after a long time without any
FIRST_STEPS = 16  # at the widest width, before commit lengths count as known
CALIBRATION_STEPS, CALIBRATION_LIMIT = 3, 12  # step times wanted of a width, and how often to ask for them
KEPT_TIMES = 25
OPTIMISM = 1.15  # a width is measured in a new cell, and a narrower one again, if this much more would win


class Reason(StrEnum):
    """Why a batch runs at its width."""

    CALIBRATING = "calibrating"
    PROBE = "probe"
    FASTEST = "fastest"
    KEPT = "kept"  # another is estimated faster, by less than the hysteresis


@dataclass(frozen=True)
class Cell:
    """Where step times are comparable. context: half octaves above 512 tokens; batch: power of two."""

    context: int
    batch: int

    @classmethod
    def of(cls, context: int, batch: int) -> Cell:
        """context: tokens of the longest request; batch: requests."""
        return cls(max(0, round(2 * math.log2(max(context, 1) / 512))), 1 << (max(batch, 1) - 1).bit_length())


@dataclass(frozen=True)
class Choice:
    """rows: verify rows of every request of the batch, root included; 1 is plain decoding."""

    rows: int
    reason: Reason
    cell: Cell


def candidate_widths(block: int, cap: int) -> tuple[int, ...]:
    """Plain decoding, one block, and its doublings up to the cap (4 blocks at most)."""
    return (1, *sorted({min(block * factor, cap) for factor in (1, 2, 4)}))


def commits_within(paths: Sequence[Sequence[int]], widths: Sequence[int]) -> list[float]:
    """What a step would have committed with trees of `widths` rows, mean over its requests.

    paths: accepted nodes of each request from the root down, -1 after the end. A path ends where it leaves
    the smaller tree.
    """
    return [sum(0 <= node < width for path in paths for node in path) / len(paths) for width in widths]


def pick(rates: Sequence[float], current: int, hysteresis: float = HYSTERESIS) -> int:
    """The index to use: the current one unless another is more than `hysteresis` faster."""
    best = max(range(len(rates)), key=rates.__getitem__)
    return best if rates[best] > rates[current] * (1 + hysteresis) else current


@dataclass
class _Growth:
    """Commit length at a width over that at the next narrower one, from steps that tell both."""

    wider: float = 0.0
    narrower: float = 0.0
    seen: int = 0
    at: int = 0

    def add(self, wider: float, narrower: float, step: int) -> None:
        self.seen += 1
        aged = 1 - math.exp(-(step - self.at) / MEMORY_STEPS)
        weight = max(1 / self.seen, min(aged, PROBE_WEIGHT))
        self.wider += weight * (wider - self.wider)
        self.narrower += weight * (narrower - self.narrower)
        self.at = step

    @property
    def ratio(self) -> float:
        return self.wider / self.narrower if self.narrower else 1.0


@dataclass
class _Times:
    """Step times of one width in one cell. seconds: their lower quartile, as what disturbs a step only ever
    lengthens it."""

    measured: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT_TIMES))
    seconds: float = math.inf
    asked: int = 0
    asked_at: int = 0

    def add(self, seconds: float) -> None:
        self.measured.append(seconds)
        self.seconds = sorted(self.measured)[len(self.measured) // 4]

    @property
    def wanting(self) -> bool:
        return len(self.measured) < CALIBRATION_STEPS and self.asked < CALIBRATION_LIMIT


class Policy:
    """Chooses a width per batch. `choose` and `observe` may lag by a step or two, as overlap makes them."""

    def __init__(self, widths: Sequence[int], block: int) -> None:
        """widths: rising, 1 first. block: the longest commit length."""
        self.widths = tuple(widths)
        self._block = block
        self._growth = [_Growth() for _ in widths]
        self._cells: dict[Cell, list[_Times]] = {}
        self._current = len(self.widths) - 1
        self._credit = 0.0
        self._step = 0

    def expected_commits(self) -> list[float]:
        """Tokens a request commits in a step at each width."""
        found = [1.0]
        for growth in self._growth[1:]:
            found.append(found[-1] * growth.ratio)
        return found

    def choose(self, context: int, batch: int) -> Choice:
        """The width of the next step. context: tokens of the longest request; batch: requests."""
        self._step += 1
        cell, commits = Cell.of(context, batch), self.expected_commits()
        times = self._cells.setdefault(cell, [_Times() for _ in self.widths])
        rates = [commit / time.seconds for commit, time in zip(commits, times, strict=True)]
        index = self._uncalibrated(cell, commits, max(rates))
        if index is not None:
            return self._take(cell, index, Reason.CALIBRATING)
        chosen = pick(rates, self._current)
        reason = Reason.FASTEST if rates[chosen] == max(rates) else Reason.KEPT
        self._current = chosen
        probe = self._probe(cell, commits, rates[chosen])
        return self._take(cell, chosen, reason) if probe is None else self._take(cell, probe, Reason.PROBE)

    def observe(self, choice: Choice, seconds: float | None, commits: Sequence[float]) -> None:
        """What a step did. seconds: its duration, None when other work was part of it. commits: mean over
        the requests, at every width up to the chosen one.
        """
        self.timed(choice, seconds)
        for wider in range(1, self.widths.index(choice.rows) + 1):
            self._growth[wider].add(commits[wider], commits[wider - 1], self._step)

    def timed(self, choice: Choice, seconds: float | None) -> None:
        """The part of `observe` that a clock tells."""
        if seconds is not None:
            self._cells[choice.cell][self.widths.index(choice.rows)].add(seconds)

    def _take(self, cell: Cell, index: int, reason: Reason) -> Choice:
        time = self._cells[cell][index]
        time.asked += 1
        time.asked_at = self._step
        return Choice(self.widths[index], reason, cell)

    def _uncalibrated(self, cell: Cell, commits: Sequence[float], best: float) -> int | None:
        """A width whose step time is wanted here: the current one first, then those that may beat `best`."""
        times = self._cells[cell]
        if times[self._current].wanting:
            return self._current
        if any(growth.seen < FIRST_STEPS for growth in self._growth[1:]):
            return len(self.widths) - 1
        for index in reversed(range(len(self.widths))):
            if times[index].wanting and commits[index] * OPTIMISM > best * self._at_least(cell, index):
                return index
        return None

    def _at_least(self, cell: Cell, index: int) -> float:
        """A lower bound of a width's step time: here, or at shorter contexts and smaller batches."""
        return max(
            (
                times[index].seconds
                for other, times in self._cells.items()
                if times[index].measured and other.context <= cell.context and other.batch <= cell.batch
            ),
            default=0.0,
        )

    def _most(self, index: int) -> float:
        """The longest commit length of a width."""
        return float(min(self.widths[index], self._block))

    def _probe(self, cell: Cell, commits: Sequence[float], rate: float) -> int | None:
        """Another width to try now, paid from the credit; None for none. rate: of the current one."""
        if not rate:
            return None
        current, times = self._current, self._cells[cell]
        now = times[current].seconds
        self._credit += PROBE_SHARE * now
        due: int | None = None
        for index, time in enumerate(times):
            if index == current or (due is not None and time.asked_at >= times[due].asked_at):
                continue
            hoped = self._most(index) if index > current else OPTIMISM * commits[index]
            if hoped > rate * self._seconds(cell, index):
                due = index
        loss = 0.0
        if due is not None:
            loss = max(self._seconds(cell, due) - commits[due] / rate, PROBE_SHARE * now)
        if due is None or self._credit < loss:
            self._credit = min(self._credit, max(now, loss))
            return None
        self._credit -= loss
        return due

    def _seconds(self, cell: Cell, index: int) -> float:
        """A width's step time here, or its lower bound."""
        time = self._cells[cell][index]
        return time.seconds if time.measured else self._at_least(cell, index)
