"""The engine's counters on /metrics, as far as a rule needs them (kdtree_engine/sglang/exposition.py)."""

from __future__ import annotations

from kdops.diagnose.evidence import Counters
from kdops.serving.metrics import samples


def parse(text: str) -> Counters:
    """Return the counters in Prometheus' text format; what is missing or malformed counts as absent."""
    single: dict[str, int] = {}
    at: dict[int, int] = {}
    fallbacks: dict[str, int] = {}
    for sample in samples(text):
        if sample.value < 0:
            continue
        value = int(sample.value)
        if sample.name == "kdtree_accepted_at_total":
            position = sample.labels.get("position", "")
            if position.isascii() and position.isdecimal() and 0 < int(position) <= 256:
                at[int(position)] = at.get(int(position), 0) + value
        elif sample.name == "kdtree_fallback_steps_total":
            reason = sample.labels.get("reason", "unknown")
            fallbacks[reason] = fallbacks.get(reason, 0) + value
        else:
            single[sample.name] = single.get(sample.name, 0) + value
    return Counters(
        steps=single.get("kdtree_steps_total"),
        broken=single.get("kdtree_broken_steps_total", 0),
        at=tuple(at.get(position, 0) for position in range(1, max(at, default=0) + 1)),
        fallbacks=fallbacks,
        generated=single.get("sglang:generation_tokens_total"),
        verify_steps=single.get("sglang:spec_verify_calls_total"),
    )
