"""Drafts that are rejected at long contexts."""

from __future__ import annotations

from collections.abc import Sequence

from kdops.diagnose.evidence import Evidence, Stretch
from kdops.diagnose.finding import Confidence, Finding, Severity
from kdops.diagnose.rules.positions import conditional, shares
from kdops.diagnose.rules.slopes import speculating, swept

_FALLS = 0.6
"""AL at a long context over AL at a short one, below which it has fallen."""
_SHORT, _FAR = 2048, 2
_NEVER, _OFTEN = 0.05, 0.3


def sliding_window(e: Evidence) -> tuple[Finding, ...]:
    """Beyond some context acceptance ends at a draft position."""
    for arm, stretches in speculating(e.stretches).items():
        if cut := _sharp_cut(e, stretches):
            position, near, far = cut
            known = e.drafter is not None and e.drafter.sliding_window is not None
            return (
                Finding(
                    "sliding-window-not-applied",
                    "the drafter's sliding window is not applied",
                    Severity.SLOW,
                    Confidence.PROBABLE if known else Confidence.POSSIBLE,
                    "its sliding-window layers run as full attention, so far beyond the window the later "
                    "slots of a block are wrong",
                    "engine_draft_window: 2048 (at least the block size, at most the drafter's window)",
                    f"kdops ab {arm.partition('[')[0] or 'linear'} --host {e.host} --quick"
                    " --set engine_draft_window=2048,1000000",
                    (
                        f"at {far.context:,.0f} tokens no draft is accepted from position {position} on: "
                        f"{shares(far.histogram)}",
                        f"at {near.context:,.0f} tokens: {shares(near.histogram)}",
                    ),
                    (
                        "a wrong draft input: the first positions are accepted",
                        "a context beyond the drafter's training: all positions would fall",
                    ),
                ),
            )
    return ()


def beyond_training(e: Evidence) -> tuple[Finding, ...]:
    """Acceptance falls with context, at all positions."""
    for arm, stretches in speculating(e.stretches).items():
        near, far = _near_and_far(stretches)
        if not near or not far or _sharp_cut(e, stretches):
            continue
        if (far.acceptance_length or 1) > _FALLS * (near.acceptance_length or 1):
            continue
        positions = e.drafter.positions if e.drafter else None
        window = e.setting("draft_window")
        covered = window is not None and positions is not None and window <= positions
        if covered:
            continue
        beyond = positions is not None and far.context > positions
        seen = [
            f"AL {near.acceptance_length:.2f} at {near.context:,.0f} tokens, "
            f"{far.acceptance_length:.2f} at {far.context:,.0f}"
        ]
        if positions is not None:
            seen.append(f"the drafter's positions: {positions:,}; engine_draft_window: {window or 'not set'}")
        return (
            Finding(
                "draft-beyond-training",
                "the drafter is used beyond its training length",
                Severity.SLOW,
                Confidence.PROBABLE if beyond else Confidence.POSSIBLE,
                "positions and distances that it never saw in training make its drafts worse the longer the "
                "context is",
                "engine_draft_window: 2048 keeps what it sees within its training length",
                f"kdops ab {arm.partition('[')[0] or 'linear'} --host {e.host} --quick"
                " --set engine_draft_window=2048,8192",
                tuple(seen),
                ("a bug that rejects every draft: acceptance is right at short contexts",),
            ),
        )
    return ()


def _near_and_far(stretches: Sequence[Stretch]) -> tuple[Stretch | None, Stretch | None]:
    """Return the shortest and the longest context on comparable text, if they are far apart."""
    found = swept(stretches)
    near, far = min(found, key=lambda s: s.context), max(found, key=lambda s: s.context)
    apart = far.context > _SHORT and far.context >= _FAR * max(near.context, 1)
    return (near, far) if apart else (None, None)


def _sharp_cut(e: Evidence, stretches: Sequence[Stretch]) -> tuple[int, Stretch, Stretch] | None:
    """Return (position, near, far) if far contexts accept nothing from a position on that near ones reach."""
    near, far = _near_and_far(stretches)
    if not near or not far or not near.histogram or not far.histogram:
        return None
    here, there = conditional(near.histogram), conditional(far.histogram)
    for position in range(3, 7):
        if position not in there or position not in here or position - 1 not in there:
            continue
        before = min(there[p] for p in range(1, position))
        if there[position] < _NEVER and before >= _OFTEN and here[position] >= _OFTEN:
            return position, near, far
    return None
