"""Acceptance length from a request's own counts, with the invariants that must hold.

Words: one *step* is a draft + verify round; *accepted drafts* a are draft tokens the target agreed with; a
step commits c = a + 1 tokens; acceptance length (AL) = mean c = 1 + accepted drafts / steps. The first
completion token comes from prefill, and a stop or the length limit may cut the last commit, so
sum of c + plain steps = completion tokens - 1 + cut tokens. A *plain step* is one of plain decoding, which an
engine with `--ddtree-budget auto` may take; it is no verify step and commits one token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Acceptance:
    """Speculation of one request (or a sum of requests).

    steps: verify rounds; plain: plain steps. accepted: accepted drafts. histogram[i]: steps with i accepted
    drafts. problems: broken invariants, in words; a value with problems must not be compared.
    """

    steps: int
    accepted: int
    histogram: tuple[int, ...]
    problems: tuple[str, ...] = ()
    plain: int = 0

    @property
    def length(self) -> float:
        """AL: mean tokens committed a step; 1 where every step was plain."""
        return 1 + self.accepted / max(self.steps, 1)

    @property
    def committed(self) -> int:
        """Tokens committed by all steps."""
        return self.steps + self.accepted


def whole(value: Any) -> int | None:
    """Return `value` as a non-negative whole number, or None if it is none (missing, null, NaN, text, bool,
    more than a counter holds)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 63:
        return None
    return int(value) if value == int(value) else None


def acceptance(meta: Mapping[str, Any], completion_tokens: int | None) -> Acceptance | None:
    """Return the acceptance in `meta_info` of SGLang's /generate, or None when the request had no verify
    step.

    Source: SGLang 0.5.23, managers/tokenizer_manager.py, _calculate_spec_decoding_metrics.
    """
    steps = whole(meta.get("spec_verify_ct"))
    if not steps:
        return None
    raw = meta.get("spec_correct_drafts_histogram")
    cells = [whole(cell) for cell in raw] if isinstance(raw, list) else []
    histogram = tuple(cell for cell in cells if cell is not None)
    counted = whole(meta.get("spec_num_correct_drafts"))
    problems = []
    if not histogram or len(histogram) != len(cells):
        problems.append("no usable histogram of accepted drafts")
        histogram = ()
    summed = sum(i * n for i, n in enumerate(histogram))
    if histogram and sum(histogram) != steps:
        problems.append(f"the histogram has {sum(histogram)} steps, the counter {steps}")
    if histogram and counted is not None and counted != summed:
        problems.append(f"the histogram has {summed} accepted drafts, the counter {counted}")
    accepted = summed if histogram else counted
    if accepted is None:
        return None
    plain = whole(meta.get("spec_plain_steps")) or 0
    found = Acceptance(steps, accepted, histogram, plain=plain)
    if completion_tokens is not None:
        cut = found.committed + plain - (completion_tokens - 1)
        # Only the last commit can be cut, and at least one of its tokens is kept.
        longest = len(histogram) or found.committed
        if cut < 0 or cut >= max(longest, 1):
            done = found.committed + plain
            problems.append(f"{done} tokens committed, but {completion_tokens} completion tokens")
    return Acceptance(steps, accepted, histogram, tuple(problems), plain)
