"""The built-in prompt sets, written for kdops: five kinds of text that accept drafts differently."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from kdops.bench.workloads import sampling
from kdops.bench.workloads.sampling import GREEDY, Sampling


@dataclass(frozen=True)
class PromptSet:
    """Prompts of one kind of text, and how each token is chosen.

    pad_to: repeat the prompt to exactly so many tokens (0: as it is).
    """

    name: str
    prompts: tuple[str, ...]
    pad_to: int = 0
    sampling: Sampling = GREEDY

    @property
    def digest(self) -> str:
        """sha256 of the content: sets with different digests are different workloads."""
        content = json.dumps([self.prompts, self.pad_to, self.sampling.document()], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()


def built_in() -> tuple[PromptSet, ...]:
    """Return the five sets of `kdops-1.json`; a changed text is a new version with another file name."""
    raw = json.loads(Path(__file__).with_name("kdops-1.json").read_text(encoding="utf-8"))
    return tuple(
        PromptSet(name, tuple(one["prompts"]), one.get("pad_to", 0), sampling.read(one["sampling"], name))
        for name, one in raw.items()
    )
