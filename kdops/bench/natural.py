"""Where a text would have ended by itself: what comes after it repeats, and flatters a drafter.

Measurements run with ignore_eos for a fixed length. Speed and acceptance count the arrivals up to the last
one before the first end token.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kdops.serving.acceptance import Acceptance

FLATTERS = 0.05
"""The share of text past its natural end that is a finding."""


@dataclass(frozen=True)
class Useful:
    """What of one request counts. tokens, seconds: after the first arrival. past: tokens after the end.

    gaps: seconds between arrivals. exact: False if arrivals do not tell every step apart (several came as
    one, or a plain step looks like a verify step of one token), so that acceptance is approximate.
    """

    tokens: int
    seconds: float
    acceptance: Acceptance | None
    gaps: tuple[float, ...]
    past: int = 0
    exact: bool = True


def useful(sample: Mapping[str, Any], accepted: Acceptance | None, ends: Collection[int]) -> Useful:
    """Return what counts of a checked sample. ends: ids of the tokens that end a text."""
    total = int(sample["meta"]["completion_tokens"])
    gaps = tuple(float(gap) for gap in sample.get("gaps") or ())
    whole = Useful(total - int(sample["first_tokens"]), float(sample["decode_seconds"]), accepted, gaps)
    end = next((i for i, token in enumerate(sample["output_ids"]) if token in ends), None)
    counts = sample.get("counts") or []
    if end is None or len(counts) != len(gaps) + 1 or None in counts:
        return whole
    kept = max((i for i, count in enumerate(counts) if count <= end), default=0)
    commits = [after - before for before, after in pairwise(counts[: kept + 1])]
    return Useful(
        tokens=counts[kept] - counts[0],
        seconds=sum(gaps[:kept]),
        acceptance=_of(commits, accepted) if accepted else None,
        gaps=gaps[:kept],
        past=total - end,
        exact=accepted is None
        or (accepted.steps + accepted.plain == len(gaps) and not (accepted.plain and _rejected(accepted))),
    )


def _of(commits: list[int], whole: Acceptance) -> Acceptance | None:
    """Acceptance of steps that committed so many tokens each; an event without a token is no step.

    Steps of one token are plain steps in the share that they are in the `whole` request.
    """
    steps = [commit for commit in commits if commit > 0]
    if not steps:
        return None
    plain = round(steps.count(1) * whole.plain / (whole.plain + _rejected(whole))) if whole.plain else 0
    first, *others = (steps.count(i + 1) for i in range(max(steps)))
    return Acceptance(len(steps) - plain, sum(steps) - len(steps), (first - plain, *others), plain=plain)


def _rejected(of: Acceptance) -> int:
    """Verify steps that accepted no draft."""
    return of.histogram[0] if of.histogram else 0


def end_tokens(config: bytes) -> tuple[int, ...] | None:
    """Return the end tokens in a generation_config.json or config.json, None if it names none."""
    try:
        document = json.loads(config)
    except (ValueError, RecursionError):
        return None
    told = document.get("eos_token_id") if isinstance(document, dict) else None
    listed = told if isinstance(told, list) else [told]
    found = tuple(token for token in listed if isinstance(token, int) and not isinstance(token, bool))
    return found or None
