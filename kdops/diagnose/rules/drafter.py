"""Drafts that are rejected, and the shapes by which the reasons differ."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from kdops.diagnose.evidence import Evidence, Stretch
from kdops.diagnose.finding import Confidence, Finding, Severity
from kdops.diagnose.rules.slopes import speculating, swept

_FALLS = 0.6
"""AL at a long context over AL at a short one, below which it has fallen."""
_SHORT, _FAR = 2048, 2
_REACHED = 20
"""The fewest steps that must have come to a draft position before its acceptance is judged."""
_NEVER, _OFTEN = 0.05, 0.3
_MISMATCH, _BAD_INPUT = 1.15, 2.0
_FIRST = 0.75
"""Acceptance at the first position over the mean of the next two, below which the input is suspect."""
_STEPS = 200


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
                        f"{_shares(far.histogram)}",
                        f"at {near.context:,.0f} tokens: {_shares(near.histogram)}",
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


def wrong_from_the_start(e: Evidence) -> tuple[Finding, ...]:
    """Acceptance is low from the first token of the shortest prompt, or at the first position of a block."""
    best_past = max((v for p in e.past if p.quantity == "AL" for v in p.before), default=None)
    for arm, found in _histograms(e).items():
        steps = sum(map(sum, found.values()))
        accepted = sum(i * n for cells in found.values() for i, n in enumerate(cells))
        best = max(
            1 + sum(i * n for i, n in enumerate(cells)) / max(1, sum(cells)) for cells in found.values()
        )
        if steps < _STEPS or not accepted:
            continue
        name, known = arm or "the engine", best_past is not None and best <= _FALLS * best_past
        seen = [f"{name}: AL at most {best:.2f} on any text, {steps:,} steps"]
        seen += [f"up to {best_past:.2f} before on this host"] if best_past else []
        if best <= _MISMATCH:
            return (_mismatch(e, seen),)
        if best <= _BAD_INPUT and (known or best_past is None):
            return (_input(e, seen, known),)
        if first := _first_position(found):
            return (_input(e, [first, *seen], known),)
    return ()


def _histograms(e: Evidence) -> dict[str, dict[str, tuple[int, ...]]]:
    """Return arm → text → histogram of accepted drafts; the engine's counters where nothing was measured."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for arm, stretches in speculating(e.stretches).items():
        for s in stretches:
            if s.histogram and s.text != "context":
                found.setdefault(arm, {})[s.text] = s.histogram
    if not found and e.counters and e.counters.steps and e.counters.at:
        reached = [e.counters.steps, *e.counters.at, 0]
        cells = tuple(max(0, now - then) for now, then in itertools.pairwise(reached))
        found[e.profile] = {"": cells}
    return found


def _first_position(found: Mapping[str, Sequence[int]]) -> str:
    """Return in words that drafts fail at the first position more than after it, or nothing.

    A sound drafter guesses its first position as well as the later ones, given the ones before.
    """
    ratios = {}
    for text, histogram in found.items():
        shares = _conditional(histogram)
        if 2 in shares and 3 in shares and shares[2] + shares[3] > 0:
            ratios[text] = 2 * shares[1] / (shares[2] + shares[3])
    low = [text for text, ratio in ratios.items() if ratio <= _FIRST]
    if not low or 2 * len(low) < len(ratios):
        return ""
    text = min(low, key=ratios.__getitem__)
    where = f" on {text}" if text else ""
    return f"share accepted at each position{where}, given the ones before: {_shares(found[text])}"


def _mismatch(e: Evidence, seen: list[str]) -> Finding:
    return Finding(
        "drafter-mismatch",
        "the drafter is right by chance only",
        Severity.SLOW,
        Confidence.PROBABLE,
        "it was trained for another target, its weights are damaged, or its hidden-state layers are not the "
        "right ones",
        "compare the drafter's files with their source (sizes, checksums) and its target_layer_ids with the "
        f"target: kdops check {e.host}",
        f"kdops check {e.host}",
        tuple(seen),
        ("text that is hard to guess: every prompt set shows it",),
    )


def _input(e: Evidence, seen: list[str], known: bool) -> Finding:
    return Finding(
        "draft-input",
        "the drafter gets a wrong input",
        Severity.SLOW,
        Confidence.PROBABLE if known else Confidence.POSSIBLE,
        "drafts are poor from the first token and the first position on, at every context: slot 0 fed the "
        "mask embedding instead of the last token, hidden states of the wrong layers, or a wrong rope",
        "run kdtree-engine's own draft path (profile ddtree-chain), and report it: kdops report " + e.host,
        f"kdops ab linear ddtree-chain --host {e.host} --quick",
        tuple(seen),
        (
            "a context beyond the drafter's training: short contexts show it too",
            "a drafter of another model: its drafts would be right by chance only",
        ),
    )


def kv_after_prefix_hit(e: Evidence) -> tuple[Finding, ...]:
    """Requests whose prompt came from the prefix cache accept less."""
    compared = [s for s in e.stretches if s.cached is not None and s.acceptance_length is not None]
    for arm in dict.fromkeys(s.arm for s in compared):
        own = [s for s in compared if s.arm == arm]
        cold = [s.acceptance_length or 1 for s in own if s.cached == 0]
        warm = [s.acceptance_length or 1 for s in own if s.cached and s.cached > 0.5 * s.context]
        if not cold or not warm:
            continue
        before, after = sum(cold) / len(cold), sum(warm) / len(warm)
        if after > _FALLS * before:
            continue
        return (
            Finding(
                "draft-kv-after-prefix-hit",
                "the drafter has no KV for tokens from the prefix cache",
                Severity.SLOW,
                Confidence.PROBABLE,
                "a prefix hit restores the target's KV, but the drafter's was never written for those tokens",
                "until it is mended: --set 'engine_extra_args={disable-radix-cache: true}' (each prompt is "
                "computed again)",
                f"kdops deploy {e.host} --set 'engine_extra_args={{disable-radix-cache: true}}'",
                (f"{arm or 'AL'}: {before:.2f} without, {after:.2f} after a prefix hit",),
                ("the text: the same prompts are compared",),
            ),
        )
    return ()


def other_logits(e: Evidence) -> tuple[Finding, ...]:
    """Acceptance decays over one long answer."""
    for generation in e.journal.generations if e.journal else ():
        quarter = len(generation) // 4
        if quarter < 2 or generation[-1].tokens - generation[0].tokens < 500:
            continue
        first = sum(w.acceptance_length or 1 for w in generation[:quarter]) / quarter
        last = sum(w.acceptance_length or 1 for w in generation[-quarter:]) / quarter
        if last > 1.15 or first < 1.5 * last:
            continue
        return (
            Finding(
                "verify-other-logits",
                "verify sees other logits than the drafter",
                Severity.SLOW,
                Confidence.PROBABLE if e.penalties else Confidence.POSSIBLE,
                "penalties lower the logits that verify samples from, the drafter proposes from raw ones: "
                "the longer the answer, the more tokens are penalised",
                "send requests without frequency, presence and repetition penalties, or serve them by "
                "plain decoding",
                f"kdops bench {e.host}",
                (
                    f"AL {first:.2f} at first, {last:.2f} at the end of one generation of "
                    f"{generation[-1].tokens - generation[0].tokens:,} tokens",
                    *(("penalties were set",) if e.penalties else ()),
                ),
                ("a wrong draft input: the beginning of the answer is accepted",),
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
    here, there = _conditional(near.histogram), _conditional(far.histogram)
    for position in range(3, 7):
        if position not in there or position not in here or position - 1 not in there:
            continue
        before = min(there[p] for p in range(1, position))
        if there[position] < _NEVER and before >= _OFTEN and here[position] >= _OFTEN:
            return position, near, far
    return None


def _conditional(histogram: Sequence[int]) -> dict[int, float]:
    """Return position → share of the steps that reached it in which its draft was accepted."""
    found = {}
    for position in range(1, len(histogram)):
        reached = sum(histogram[position - 1 :])
        if reached >= _REACHED:
            found[position] = sum(histogram[position:]) / reached
    return found


def _shares(histogram: Sequence[int]) -> str:
    return " ".join(f"{share:.2f}" for share in _conditional(histogram).values()) or "too few steps"
