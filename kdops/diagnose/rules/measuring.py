"""What a measurement hides."""

from __future__ import annotations

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.finding import Confidence, Finding, Severity
from kdops.diagnose.rules.slopes import speculating

_BURST, _LONG = 400, 1500
_FLATTERS = 1.05
_TEXTS = 1.5
_WINDOWS = 10


def short_burst(e: Evidence) -> tuple[Finding, ...]:
    """A burst of a few hundred tokens looks faster than a long answer."""
    seen = [text for title, text in (e.measurement.doubts if e.measurement else ()) if "burst" in title]
    for arm in dict.fromkeys(s.arm for s in e.stretches):
        own = [s for s in e.stretches if s.arm == arm and s.generated and s.text != "context"]
        short = [s for s in own if s.generated and s.generated <= _BURST]
        long = [s for s in own if s.generated and s.generated >= _LONG]
        if seen or not short or not long:
            continue
        slow = min(long, key=lambda s: s.tokens_per_second)
        near = min(short, key=lambda s: abs(s.context - slow.context))
        if near.tokens_per_second > _FLATTERS * slow.tokens_per_second:
            seen.append(
                f"{near.tokens_per_second:.1f} tok/s over {near.generated} tokens, "
                f"{slow.tokens_per_second:.1f} over {slow.generated:,}: AL {near.acceptance_length or 1:.2f} "
                f"and {slow.acceptance_length or 1:.2f}, step time {near.step_time * 1e3:.0f} ms and "
                f"{slow.step_time * 1e3:.0f} ms"
            )
    if not seen:
        return ()
    return (
        Finding(
            "short-burst-flatters",
            "a short burst looks faster than a long generation",
            Severity.NOTE,
            Confidence.CERTAIN,
            "the beginning of an answer is easier to draft and its context shorter, so two points of a short "
            "burst show neither what the text nor what the context costs",
            "judge by generations of 1,500 tokens or more",
            f"kdops bench {e.host}",
            tuple(seen),
        ),
    )


def text_dependent(e: Evidence) -> tuple[Finding, ...]:
    """What is served accepts far less than what was measured, or one measurement less than another.

    A measurement with several prompt sets says so itself: within one, a difference is no finding.
    """
    lengths: dict[str, list[float]] = {}
    for stretches in speculating(e.stretches).values():
        for s in stretches:
            lengths.setdefault(s.source, []).append(s.acceptance_length or 1)
    windows = [w.acceptance_length for g in (e.journal.generations if e.journal else ()) for w in g]
    served = [length for length in windows if length]
    if len(served) >= _WINDOWS:
        lengths.setdefault("what is served", []).append(sum(served) / len(served))
    if len(lengths) < 2:
        return ()
    low = min(lengths, key=lambda source: max(lengths[source]))
    high = max((source for source in lengths if source != low), key=lambda source: max(lengths[source]))
    if min(lengths[high]) < _TEXTS * max(lengths[low]):
        return ()
    return (
        Finding(
            "text-dependent-acceptance",
            "acceptance depends on the text",
            Severity.NOTE,
            Confidence.PROBABLE,
            "a drafter guesses repetitive text well and free reasoning badly; what was measured on one says "
            "nothing about the other",
            "compare per kind of text, with prompts like those you serve",
            f"kdops bench {e.host} --prompts FILE",
            (f"AL {_span(lengths[high])} in {high}, {_span(lengths[low])} in {low}",),
        ),
    )


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if high - low < 0.005 else f"{low:.2f} to {high:.2f}"
