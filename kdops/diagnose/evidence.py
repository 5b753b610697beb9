"""What is known of one engine, typed and frozen. Every source may be absent; `absent` says which and why.

Times in seconds, memory in bytes, context and generated lengths in tokens. acceptance_length (AL) is mean
committed tokens a step; None for plain decoding, where a step is a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kdops.diagnose.failures import Failure
from kdops.fleet.gpus import Gpu


@dataclass(frozen=True)
class Stretch:
    """A stretch of decoding of one stream, with one mean for each quantity.

    context: tokens before what it generated, about; generated: how many those were, None if unknown; text:
    prompt set; cached: prompt tokens that came from the prefix cache; histogram[i]: steps with i accepted
    drafts; arm: profile with overrides, empty if unknown.
    """

    source: str
    context: float
    tokens_per_second: float
    acceptance_length: float | None = None
    generated: int | None = None
    text: str = ""
    arm: str = ""
    cached: int | None = None
    histogram: tuple[int, ...] = ()

    @property
    def step_time(self) -> float:
        """Seconds of one step."""
        return (self.acceptance_length or 1.0) / self.tokens_per_second


@dataclass(frozen=True)
class Window:
    """One decode line of SGLang's: tokens in the pool; step_time in seconds; acceptance_length is SGLang's
    mean over the window; hit: most of the prompt came from the prefix cache (None: the prefill was not seen).
    """

    tokens: int
    running: int
    step_time: float
    acceptance_length: float | None
    hit: bool | None = None


@dataclass(frozen=True)
class Tree:
    """The DDTREE lines of a journal. Means over lines. inconsistent: lines that break c = a + 1 = depth + 1;
    flat: lines with commit length exactly 1.00."""

    lines: int
    inconsistent: int
    flat: int
    commit: float
    depth: float
    rows: int
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Logged:
    """Steps that an engine logged one by one, and the tokens that they committed."""

    steps: int
    committed: int

    @property
    def acceptance_length(self) -> float:
        """AL over these steps: an estimate unless they are all there were."""
        return self.committed / self.steps

    def coverage(self, tokens: int) -> float:
        """Return the share of the generated tokens that these steps account for."""
        return self.committed / tokens


@dataclass(frozen=True)
class Journal:
    """What a journal holds. generations: clean windows of single streams, one tuple a generation.

    commits: (accepted drafts, commit length) → lines, of engines that log every step. pool, context: tokens
    of the KV pool and the longest context, as the engine said at start. starts: seconds of each start that
    became ready. suppressed: lines that journald dropped. refused: requests too long. familiar: one of its
    lines is of an engine, systemd or journalctl.
    """

    lines: int = 0
    familiar: bool = False
    windows: int = 0
    flat_windows: int = 0
    eager_windows: int = 0
    graph_windows: int = 0
    generations: tuple[tuple[Window, ...], ...] = ()
    tree: Tree | None = None
    commits: Mapping[tuple[int, int], int] = field(default_factory=dict)
    pool: int | None = None
    context: int | None = None
    starts: tuple[float, ...] = ()
    failure: Failure | None = None
    suppressed: int = 0
    refused: int = 0

    @property
    def logged(self) -> Logged | None:
        """The sums over `commits`, None without one."""
        if not self.commits:
            return None
        return Logged(sum(self.commits.values()), sum(c * lines for (_, c), lines in self.commits.items()))


@dataclass(frozen=True)
class Counters:
    """/metrics since the engine's start. at[i]: steps that accepted a draft at position i + 1; fallbacks:
    reason → steps that committed one token only."""

    steps: int | None = None
    broken: int = 0
    at: tuple[int, ...] = ()
    fallbacks: Mapping[str, int] = field(default_factory=dict)
    generated: int | None = None
    verify_steps: int | None = None


@dataclass(frozen=True)
class Settings:
    """requested: engine_* keys without the prefix. effective: /server_info."""

    requested: Mapping[str, Any]
    effective: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Drafter:
    """What the drafter's config.json says; None where it does not."""

    block_size: int | None = None
    positions: int | None = None
    sliding_window: int | None = None


@dataclass(frozen=True)
class GpuUse:
    """One or several GPUs over a while. busy: 0 to 1; clocks in MHz; power in W; reasons: what held the
    clocks down, in words of `kdops.throttle`."""

    source: str
    busy: float | None = None
    clock: float | None = None
    max_clock: float | None = None
    power: float | None = None
    temperature: float | None = None
    reasons: tuple[str, ...] = ()
    working: bool = True


@dataclass(frozen=True)
class Unit:
    """The service as systemd sees it. cpu_quota: CPU seconds a second, None without a limit; throttled:
    share of the scheduler periods in which that limit stopped the engine. since: when it came into this
    state, empty if it has been in it since the boot; absence: why there is no such unit to start."""

    active: str = ""
    restarts: int = 0
    cpu_quota: float | None = None
    throttled: float | None = None
    drift: tuple[str, ...] = ()
    since: str = ""
    absence: str = ""


@dataclass(frozen=True)
class Change:
    """A setting that differs from the last good release."""

    setting: str
    before: Any
    after: Any


@dataclass(frozen=True)
class LastDeploy:
    """A deploy that went back. lines: of the journal, recorded with it."""

    release: str
    title: str
    cause: str
    remedy: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arm:
    """One arm of a measurement. al, step_time, speed: means over its prompt sets. rows: rows verified a
    step, root included. lossless: identical, numerically equivalent, not lossless, undecided or not checked.
    """

    name: str
    algorithm: str
    speed: float
    al: float | None
    step_time: float
    rows: int | None = None
    topk: int | None = None
    graphs: bool | None = None
    lossless: str = "not checked"
    lossless_why: str = ""


@dataclass(frozen=True)
class Measurement:
    """A run of `kdops ab` or `kdops bench`. doubts: (title, evidence) of what its own checks found."""

    run: str
    arms: tuple[Arm, ...] = ()
    doubts: tuple[tuple[str, str], ...] = ()


AL, STEP_TIME, START = "AL", "step time", "start-up time"
"""Quantities on a host's record; times in seconds."""


@dataclass(frozen=True)
class Past:
    """A quantity's history on this host and profile. now: of the newest release; previous: the one before."""

    quantity: str
    before: tuple[float, ...]
    now: float
    release: str = ""
    previous: str = ""

    def words(self, value: float) -> str:
        """Return a value of the quantity with its unit."""
        if self.quantity == STEP_TIME:
            return f"{value * 1e3:.1f} ms"
        return f"{value:.0f} s" if self.quantity == START else f"{value:.2f}"


@dataclass(frozen=True)
class Evidence:
    """Everything the rules may use. floor: least seconds of a step for each token of context (its KV bytes
    over the GPU's bandwidth); predicted_pool: tokens; asked_tokens: how many tokens `journal.commits` should
    account for; changes: since the last good release, or what a failed deploy would have changed.
    """

    host: str = "HOST"
    profile: str = ""
    gpu: Gpu | None = None
    floor: float | None = None
    predicted_pool: int | None = None
    stretches: tuple[Stretch, ...] = ()
    journal: Journal | None = None
    asked_tokens: int | None = None
    counters: Counters | None = None
    settings: Settings | None = None
    drafter: Drafter | None = None
    gpus: tuple[GpuUse, ...] = ()
    unit: Unit | None = None
    changes: tuple[Change, ...] = ()
    failed_deploy: LastDeploy | None = None
    measurement: Measurement | None = None
    past: tuple[Past, ...] = ()
    penalties: bool | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    def setting(self, name: str) -> Any:
        """Return the requested value of a setting, None if it or all settings are unknown."""
        return self.settings.requested.get(name) if self.settings else None
