"""What one leg sends: stages of requests, the same ones in the same order for every arm."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kdops.bench.workloads.prompts import PromptSet
from kdops.errors import UsageError

LONG = "long"
CONTEXT = "context"
CONCURRENT = "concurrent"
_SWEEP = (64, 1024, 4096, 16384, 65536)


@dataclass(frozen=True)
class Request:
    """One greedy request of fixed length. key: unique in the suite. pad_to: exact prompt tokens (0: none)."""

    key: str
    text: str
    tokens: int
    pad_to: int = 0

    def document(self) -> dict[str, Any]:
        """Return what the load client reads."""
        sampling = {"max_new_tokens": self.tokens, "temperature": 0.0, "ignore_eos": True}
        return {"key": self.key, "text": self.text, "pad_to": self.pad_to, "sampling": sampling}


@dataclass(frozen=True)
class Stage:
    """Requests that run together. Its name is a prompt set's, or long, context or concurrent."""

    name: str
    requests: tuple[Request, ...]
    concurrency: int = 1

    def document(self) -> dict[str, Any]:
        """Return what the load client reads."""
        requests = [request.document() for request in self.requests]
        return {"name": self.name, "concurrency": self.concurrency, "requests": requests}


@dataclass(frozen=True)
class Suite:
    """All stages of a leg. sets: the names of the prompt sets, whose mean is the primary endpoint."""

    warmup: Stage
    stages: tuple[Stage, ...]
    sets: tuple[str, ...]

    @property
    def digest(self) -> str:
        """sha256 of everything that is sent."""
        content = json.dumps([stage.document() for stage in self.stages], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def tokens(self) -> int:
        """Output tokens of one leg."""
        return sum(request.tokens for stage in self.stages for request in stage.requests)


def make(
    sets: Sequence[PromptSet], *, quick: bool, context_length: int | None = None, concurrency: int = 4
) -> Suite:
    """Build the suite. context_length: of the engine in tokens; longer contexts are left out.

    Raises UsageError for a set without a prompt or one that does not fit the context.
    """
    tokens, per_set, long = (48, 1, 192) if quick else (128, 4, 1536)
    names = [one.name for one in sets]
    if not names or len(set(names)) != len(names) or {LONG, CONTEXT, CONCURRENT} & set(names):
        raise UsageError(
            "the prompt sets cannot be told apart",
            cause=f"names: {', '.join(names) or 'none'}",
            remedy=f"give each set its own name, other than {LONG}, {CONTEXT} and {CONCURRENT}",
        )
    stages = [_of_set(one, tokens, per_set, context_length) for one in sets]
    text = stages[min(1, len(stages) - 1)].requests[0].text  # built in: prose, which flatters nobody
    stages.append(Stage(LONG, (Request(f"{LONG}/0", text, long),)))
    contexts = [n for n in _SWEEP if context_length is None or n + tokens < context_length]
    contexts = contexts[: 2 if quick else len(_SWEEP)]
    sweep = tuple(Request(f"{CONTEXT}/{n}", f"{n} steps along the shore. " + text, 32, n) for n in contexts)
    stages.append(Stage(CONTEXT, sweep))
    many = tuple(
        Request(f"{CONCURRENT}/{i}", f"{i}. {stages[i % len(sets)].requests[0].text}", tokens // 2)
        for i in range(2 * concurrency)
    )
    stages.append(Stage(CONCURRENT, many, concurrency))
    warm = tuple(Request(f"warm-up/{i}", "Before the first race the track is swept.", 32) for i in range(2))
    return Suite(Stage("warm-up", warm), tuple(stages), tuple(names))


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
        Request(f"{one.name}/{i}", text, tokens, one.pad_to) for i, text in enumerate(one.prompts[:most])
    ]
    return Stage(one.name, tuple(requests))
