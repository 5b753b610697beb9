"""Where speculation loses."""

from __future__ import annotations

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.finding import Confidence, Finding, Severity
from kdops.diagnose.rules.slopes import speculating

_MARGIN = 0.98


def loses(e: Evidence) -> tuple[Finding, ...]:
    """From some context on plain decoding is faster."""
    plain: dict[float, list[float]] = {}
    for stretch in e.stretches:
        if stretch.acceptance_length is None and stretch.text in ("context", ""):
            plain.setdefault(stretch.context, []).append(stretch.tokens_per_second)
    if not plain:
        return ()
    found = []
    for arm, stretches in speculating(e.stretches).items():
        pairs = sorted(
            (s.context, s.tokens_per_second, sum(p) / len(p))
            for s in stretches
            for context, p in plain.items()
            if abs(context - s.context) <= 0.05 * max(context, 1)
        )
        losing = [pair for pair in pairs if pair[1] < _MARGIN * pair[2]]
        if not losing or not pairs or losing != pairs[len(pairs) - len(losing) :]:
            continue
        length = _break_even(pairs, len(pairs) - len(losing))
        context, speed, other = losing[-1]
        found.append(
            Finding(
                "speculation-loses",
                f"speculation loses above {length:,.0f} tokens of context",
                Severity.SLOW,
                Confidence.PROBABLE,
                "verifying costs more there than the accepted drafts save",
                f"turn speculation off above {length:,.0f} tokens: serve longer requests with the profile "
                "autoregressive",
                f"kdops ab autoregressive {arm.partition('[')[0] or 'linear'} --host {e.host}",
                (f"{arm}: {speed:.1f} tok/s at {context:,.0f} tokens, {other:.1f} without speculation",),
            )
        )
    return tuple(found)


def _break_even(pairs: list[tuple[float, float, float]], first: int) -> float:
    """Return the context at which both are equally fast: between the last that wins and the next."""
    if first == 0:
        return 0.0
    (a, fast, slow), (b, fast_b, slow_b) = pairs[first - 1], pairs[first]
    before, after = fast / slow - 1, fast_b / slow_b - 1
    return a + (b - a) * before / (before - after) if before > after else b
