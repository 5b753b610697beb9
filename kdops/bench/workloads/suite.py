"""What one leg sends: stages of requests, the same ones in the same order for every arm."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kdops.bench.workloads.prompts import PromptSet
from kdops.bench.workloads.sampling import GREEDY, Sampling
from kdops.errors import UsageError

AGAIN = "again-"
"""Stages of the reference that send the prompt sets once more, N at a time, have this before N."""
LONG = "long"
CONTEXT = "context"
LEVEL = "concurrent-"
"""Stages that keep N requests running have this before N."""
OPEN_LOOP = "open-loop-"
"""The stage whose requests arrive by themselves, R a second, has this before R."""
_OPEN_LOOP_S, _QUICK_OPEN_LOOP_S = 30.0, 5.0
_ARRIVAL_SEED = 1
_MOST_ARRIVALS = 2000
_MOST_STREAMS = 512
_FEWEST_TOKENS, _MOST = 8, 100_000
_LONG_PROMPT = 512
_COMPOSITIONS = (4, 16)
_SWEEP = (64, 1024, 4096, 16384, 65536)


@dataclass(frozen=True)
class Request:
    """One request of fixed length. key: unique in the suite. pad_to: exact prompt tokens (0: none).

    margins: ask for the margin of each token; the engine is slower then.
    """

    key: str
    text: str
    tokens: int
    pad_to: int = 0
    sampling: Sampling = GREEDY
    margins: bool = False

    def document(self) -> dict[str, Any]:
        """Return what the load client reads."""
        sampling = {"max_new_tokens": self.tokens, **self.sampling.parameters(), "ignore_eos": True}
        told = {"key": self.key, "text": self.text, "pad_to": self.pad_to, "sampling": sampling}
        return {**told, "margins": True} if self.margins else told


_WARM = Request("warm-up", "Before the first race the track is swept.", 32)


@dataclass(frozen=True)
class Stage:
    """Requests that run together. Its name is a prompt set's, long, context, or begins as LEVEL or OPEN_LOOP.

    starts: when each request arrives, seconds from the first; empty: as soon as `concurrency` allows.
    """

    name: str
    requests: tuple[Request, ...]
    concurrency: int = 1
    starts: tuple[float, ...] = ()

    def document(self) -> dict[str, Any]:
        """Return what the load client reads."""
        requests = [request.document() for request in self.requests]
        told = {"name": self.name, "concurrency": self.concurrency, "requests": requests}
        return {**told, "starts": list(self.starts)} if self.starts else told


@dataclass(frozen=True)
class Load:
    """How much a leg sends, as chosen. tokens: new ones of each request of a set, prompts: of each set; None:
    as many as usual. levels: streams at once. rate: requests/s of an open-loop stage, None for none.
    sampling: of every request, None: each set's own.
    """

    tokens: int | None = None
    prompts: int | None = None
    levels: tuple[int, ...] = (4,)
    rate: float | None = None
    sampling: Sampling | None = None


@dataclass(frozen=True)
class Suite:
    """All stages of a leg. sets: the names of the prompt sets, whose mean is the primary endpoint."""

    warmup: Stage
    stages: tuple[Stage, ...]
    sets: tuple[str, ...]
    load: Load

    @property
    def digest(self) -> str:
        """sha256 of everything that is sent."""
        content = json.dumps([stage.document() for stage in self.stages], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def tokens(self) -> int:
        """Output tokens of one leg."""
        return count(self.stages)

    @property
    def sampling(self) -> dict[str, Sampling]:
        """How each prompt set is sampled."""
        return {one.name: one.requests[0].sampling for one in self.stages if one.name in self.sets}

    @property
    def greedy(self) -> tuple[str, ...]:
        """The prompt sets whose tokens must not depend on the arm."""
        return tuple(name for name, one in self.sampling.items() if one.greedy)


def count(stages: Sequence[Stage]) -> int:
    """Return the output tokens of `stages`."""
    return sum(request.tokens for stage in stages for request in stage.requests)


def make(
    sets: Sequence[PromptSet],
    *,
    quick: bool,
    context_length: int | None = None,
    tokens: int | None = None,
    prompts: int | None = None,
    levels: Sequence[int] = (4,),
    rate: float | None = None,
    sampling: Sampling | None = None,
) -> Suite:
    """Build the suite. context_length: of the engine in tokens; longer contexts are left out. The others are
    those of `Load`.

    Raises UsageError for a set without a prompt, one that does not fit the context, or an odd load.
    """
    load = Load(tokens, prompts, tuple(sorted(set(levels))), rate, sampling)
    length, per_set, long = (48, 1, 192) if quick else (128, 4, 1536)
    tokens = _between(load.tokens, length, _FEWEST_TOKENS, "new tokens a request", "--tokens 256")
    per_set = _between(load.prompts, per_set, 1, "prompts of each set", "--per-set 4")
    if context_length is not None:
        long = max(tokens, min(long, context_length - _LONG_PROMPT))
    if sampling:
        sets = [replace(one, sampling=sampling) for one in sets]
    names = [one.name for one in sets]
    if not names or len(set(names)) != len(names) or any(map(_reserved, names)):
        raise UsageError(
            "the prompt sets cannot be told apart",
            cause=f"names: {', '.join(names) or 'none'}",
            remedy=f"give each set its own name, other than {LONG}, {CONTEXT}, {LEVEL}… and {OPEN_LOOP}…",
        )
    stages = [_of_set(one, tokens, per_set, context_length) for one in sets]
    firsts = [stage.requests[0] for stage in stages]
    prose = firsts[min(1, len(firsts) - 1)]  # of the built-in sets the one that flatters nobody
    stages.append(Stage(LONG, (replace(prose, key=f"{LONG}/0", tokens=long, pad_to=0),)))
    contexts = [n for n in _SWEEP if context_length is None or n + tokens < context_length]
    contexts = contexts[: 2 if quick else len(_SWEEP)]
    sweep = tuple(
        Request(f"{CONTEXT}/{n}", f"{n} steps along the shore. " + prose.text, 32, n, prose.sampling)
        for n in contexts
    )
    stages.append(Stage(CONTEXT, sweep))
    stages += [_level(level, firsts, tokens // 2) for level in load.levels]
    if rate is not None:
        stages.append(_open_loop(rate, _QUICK_OPEN_LOOP_S if quick else _OPEN_LOOP_S, firsts, tokens // 2))
    # Each way of sampling has kernels of its own.
    kinds = dict.fromkeys(one.sampling for one in sets)
    warm = [replace(_WARM, key=f"warm-up/{i}", sampling=kind) for i, kind in enumerate([*kinds, *kinds])]
    return Suite(Stage("warm-up", tuple(warm)), tuple(stages), tuple(names), load)


def _between(given: int | None, usual: int, least: int, what: str, example: str) -> int:
    if given is None or least <= given <= _MOST:
        return usual if given is None else given
    raise UsageError(
        f"{given} {what}", cause=f"{least} to {_MOST} are possible", remedy=f"for example {example}"
    )


def _reserved(name: str) -> bool:
    return name in (LONG, CONTEXT) or name.startswith((LEVEL, OPEN_LOOP, AGAIN))


def _many(stage: str, number: int, texts: Sequence[Request], tokens: int) -> tuple[Request, ...]:
    chosen = ((i, texts[i % len(texts)]) for i in range(number))
    return tuple(
        Request(f"{stage}/{i}", f"{i}. {one.text}", tokens, sampling=one.sampling) for i, one in chosen
    )


def _level(level: int, texts: Sequence[Request], tokens: int) -> Stage:
    if not 1 <= level <= _MOST_STREAMS:
        raise UsageError(
            f"{level} streams at once",
            cause=f"1 to {_MOST_STREAMS} are possible",
            remedy="for example --concurrency 1,4,16",
        )
    name = f"{LEVEL}{level}"
    return Stage(name, _many(name, 2 * level, texts, tokens), level)


def _open_loop(rate: float, seconds: float, texts: Sequence[Request], tokens: int) -> Stage:
    """Requests that arrive as a Poisson process with a fixed seed, whatever the engine still has to do."""
    if not 0 < rate * seconds <= _MOST_ARRIVALS:
        raise UsageError(
            f"{rate:g} requests a second",
            cause=f"more than 0 and at most {_MOST_ARRIVALS / seconds:g} are possible",
            remedy="for example --arrivals 0.5",
        )
    source, number = random.Random(_ARRIVAL_SEED), max(2, round(rate * seconds))
    gaps = [0.0, *(source.expovariate(rate) for _ in range(number - 1))]
    name = f"{OPEN_LOOP}{rate:g}"
    starts = tuple(round(start, 6) for start in itertools.accumulate(gaps))
    return Stage(name, _many(name, number, texts, tokens), number, starts)


def reference(suite: Suite, *, margins: bool) -> tuple[Stage, ...]:
    """Return what the extra autoregressive start sends: the greedy prompt sets, whose tokens are compared.

    margins: for losslessness outside fp32, with each token's margin, and again at other batch compositions.
    """
    own = tuple(stage for stage in suite.stages if stage.name in suite.greedy)
    if not margins:
        return own
    asked = tuple(
        replace(stage, requests=tuple(replace(r, margins=True) for r in stage.requests)) for stage in own
    )
    every = [request for stage in own for request in stage.requests]
    again = []
    for together in _COMPOSITIONS:
        name = f"{AGAIN}{together}"
        requests = tuple(replace(r, key=f"{name}/{r.key}") for r in every)
        again.append(Stage(name, requests, together))
    return (*asked, *again)


def _of_set(one: PromptSet, tokens: int, most: int, context_length: int | None) -> Stage:
    if not one.prompts or not all(prompt.strip() for prompt in one.prompts):
        raise UsageError(
            f"prompt set {one.name} has an empty prompt",
            cause="nothing can be generated from it",
            remedy="fill it",
        )
    if context_length is not None and one.pad_to + tokens >= context_length:
        raise UsageError(
            f"prompt set {one.name} does not fit the context",
            cause=f"{one.pad_to} prompt tokens and {tokens} new ones, context length {context_length}",
            remedy="raise engine_context_length, or leave the set out",
        )
    requests = [
        Request(f"{one.name}/{i}", text, tokens, one.pad_to, one.sampling)
        for i, text in enumerate(one.prompts[:most])
    ]
    return Stage(one.name, tuple(requests))
