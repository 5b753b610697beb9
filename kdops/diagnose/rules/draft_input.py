"""Drafts that are poor from the start, after a prefix hit, or towards the end of an answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from kdops.diagnose.evidence import AL, Evidence
from kdops.diagnose.finding import Confidence, Finding, Severity
from kdops.diagnose.rules.ends import ends
from kdops.diagnose.rules.positions import conditional, shares
from kdops.diagnose.rules.slopes import speculating

_FALLS = 0.6
"""AL over the AL it is compared with, below which it has fallen."""
_MISMATCH, _BAD_INPUT = 1.15, 2.0
_FIRST = 0.75
"""Acceptance at the first position over the mean of the next two, below which the input is suspect."""
_STEPS = 100
_HITS = 10
"""Decode lines after prefix hits, and without, that are enough to compare."""


def wrong_from_the_start(e: Evidence) -> tuple[Finding, ...]:
    """Acceptance is low from the first token of the shortest prompt, or at the first position of a block."""
    best_past = max((v for p in e.past if p.quantity == AL for v in p.before), default=None)
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
        each = conditional(histogram)
        if 2 in each and 3 in each and each[2] + each[3] > 0:
            ratios[text] = 2 * each[1] / (each[2] + each[3])
    low = [text for text, ratio in ratios.items() if ratio <= _FIRST]
    if not low or 2 * len(low) < len(ratios):
        return ""
    text = min(low, key=ratios.__getitem__)
    where = f" on {text}" if text else ""
    return f"share accepted at each position{where}, given the ones before: {shares(found[text])}"


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
        warm = [s.acceptance_length or 1 for s in own if s.cached]
        if cold and warm and _mean(warm) <= _FALLS * _mean(cold):
            same = ("the text: requests of the same prompt set are compared",)
            return (_no_kv(e, f"{arm or 'AL'}: ", cold, warm, Confidence.PROBABLE, same),)
    windows = [w for g in (e.journal.generations if e.journal else ()) for w in g if w.acceptance_length]
    cold = [w.acceptance_length or 1 for w in windows if w.hit is False]
    warm = [w.acceptance_length or 1 for w in windows if w.hit]
    if min(len(cold), len(warm)) < _HITS or _mean(warm) > _FALLS * _mean(cold):
        return ()
    return (_no_kv(e, "what is served: AL ", cold, warm, Confidence.POSSIBLE, ()),)


def _no_kv(
    e: Evidence,
    what: str,
    cold: Sequence[float],
    warm: Sequence[float],
    confidence: Confidence,
    excluded: tuple[str, ...],
) -> Finding:
    off = "--set 'engine_extra_args={disable-radix-cache: true}'"
    return Finding(
        "draft-kv-after-prefix-hit",
        "the drafter has no KV for tokens from the prefix cache",
        Severity.SLOW,
        confidence,
        "a prefix hit restores the target's KV, but the drafter's was never written for those tokens",
        f"until it is mended: {off} (each prompt is computed again)",
        f"kdops deploy {e.host} {off}",
        (f"{what}{_mean(cold):.2f} without, {_mean(warm):.2f} after a prefix hit",),
        excluded,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def other_logits(e: Evidence) -> tuple[Finding, ...]:
    """Acceptance decays over one long answer."""
    for generation in e.journal.generations if e.journal else ():
        al = ends(generation, lambda w: w.acceptance_length or 1, 500)
        if al is None or al.last > 1.15 or al.first < 1.5 * al.last:
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
                    f"AL {al.first:.2f} at first, {al.last:.2f} at the end of one generation of "
                    f"{al.tokens:,} tokens",
                    *(("penalties were set",) if e.penalties else ()),
                ),
                ("a wrong draft input: the beginning of the answer is accepted",),
            ),
        )
    return ()
