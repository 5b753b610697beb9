"""Can the numbers and the answers be believed at all?"""

from __future__ import annotations

import re

from kdops.diagnose.evidence import AL, Evidence
from kdops.diagnose.finding import Confidence, Finding, Severity

_LINES, _WINDOWS, _STEPS = 3, 5, 50
"""The fewest DDTREE lines, decode lines or single steps that count as "every step"."""
_COMPLETE = 0.99
_CONTRADICTS = re.compile(r"histogram has|tokens committed, but|the counter \d")
_GAIN = 1.15
_PROVEN = ("identical", "numerically equivalent")


def broken_invariant(e: Evidence) -> tuple[Finding, ...]:
    """Commit length = accepted drafts + 1 = accepted depth + 1, on every step."""
    seen: list[str] = []
    if e.journal and e.journal.tree and e.journal.tree.inconsistent:
        tree = e.journal.tree
        seen += [f"{tree.inconsistent} of {tree.lines} DDTREE lines contradict themselves", *tree.examples]
    if e.counters and e.counters.broken:
        seen.append(f"the engine counted {e.counters.broken} steps that broke an invariant")
    if e.measurement:
        seen += [text for _, text in e.measurement.doubts if _CONTRADICTS.search(text)][:3]
    if not seen:
        return ()
    return (
        Finding(
            "broken-invariant",
            "the engine's numbers contradict each other",
            Severity.WRONG,
            Confidence.CERTAIN,
            "commit length, accepted drafts + 1 and accepted depth + 1 are one number, and here they differ; "
            "known ways: only the dense prefix of node indices is committed (a best-first path is cut at its "
            "first gap), or depth is taken over the whole tree",
            "believe none of its numbers; run kdtree-engine's DDTREE, or linear",
            f"kdops ab linear ddtree-chain --host {e.host} --quick",
            tuple(seen),
            ("rounding: it moves a mean by less than 0.015",),
        ),
    )


def flat_commit(e: Evidence) -> tuple[Finding, ...]:
    """Exactly one token a step, always."""
    seen = _flat(e)
    fallbacks = sum(e.counters.fallbacks.values()) if e.counters else 0
    explained = e.counters and e.counters.steps and fallbacks >= 0.95 * e.counters.steps
    if not seen or explained:
        return ()
    return (
        Finding(
            "flat-commit",
            "every draft is rejected: exactly 1.00 tokens a step",
            Severity.WRONG,
            Confidence.PROBABLE,
            "a bug between drafter and verify; seen so far: sliding-window layers run as full attention, "
            "draft KV missing for tokens from the prefix cache, slot 0 fed the mask embedding, a wrong rope "
            "or positions, verify on penalised logits, tree positions ignored under CUDA graphs, only the "
            "dense prefix committed, or a drafter of another model",
            f"check that the drafter belongs to the target (kdops check {e.host}); until it is found plain "
            f"decoding is faster: kdops deploy {e.host} --profile autoregressive",
            f"kdops ab linear ddtree-chain --host {e.host} --quick",
            tuple(seen),
            ("a weak or undertrained drafter: it would be right now and then, not in none of the steps",),
        ),
    )


def _flat(e: Evidence) -> list[str]:
    seen = []
    if j := e.journal:
        if j.tree and j.tree.lines >= _LINES and j.tree.flat == j.tree.lines:
            seen.append(f"commit length 1.00 on all {j.tree.lines} DDTREE lines, depth {j.tree.depth:.2f}")
        if j.windows >= _WINDOWS and j.flat_windows == j.windows:
            seen.append(f"accept len 1.00 on all {j.windows} decode lines")
        if (all_ := j.logged) and all_.steps >= _STEPS and all_.committed == all_.steps:
            seen.append(f"commit 1 on all {all_.steps} logged steps")
    for arm in sorted({s.arm for s in e.stretches}):
        cells = [s.histogram for s in e.stretches if s.arm == arm and s.acceptance_length is not None]
        steps = sum(map(sum, cells))
        if steps >= _STEPS and steps == sum(cell[0] for cell in cells if cell):
            seen.append(f"{arm or 'the engine'}: no draft accepted in {steps} steps")
    return seen


def incomplete_source(e: Evidence) -> tuple[Finding, ...]:
    """A journal that holds only part of the steps gives an estimate."""
    seen = []
    if e.asked_tokens and e.journal and (logged := e.journal.logged):
        coverage = logged.coverage(e.asked_tokens)
        if coverage < _COMPLETE:
            seen.append(
                f"{logged.steps} steps commit {logged.committed:,} of {e.asked_tokens:,} tokens, coverage "
                f"{coverage:.0%}: AL {logged.acceptance_length:.2f} is an estimate"
            )
    if e.journal and e.journal.suppressed:
        seen.append(f"journald dropped {e.journal.suppressed:,} messages")
    if not seen:
        return ()
    return (
        Finding(
            "incomplete-source",
            "the journal holds only part of the steps",
            Severity.NOTE,
            Confidence.CERTAIN,
            "lines were dropped, so what is counted from them is an estimate, and no verdict rests on it",
            "kdops' unit turns the journal's rate limit off; a hand-written one needs "
            "LogRateLimitIntervalSec=0",
            f"kdops bench {e.host}",
            tuple(seen),
        ),
    )


def not_lossless(e: Evidence) -> tuple[Finding, ...]:
    """Faster, plausible and wrong: tokens differ from plain decoding."""
    return tuple(
        Finding(
            "not-lossless",
            f"{arm.name} gives other tokens than plain decoding",
            Severity.WRONG,
            Confidence.CERTAIN,
            "speculation must not change greedy output; a captured graph without the tree's mask, or a walk "
            "that takes a wrong branch, does",
            "do not serve with it, however fast it is",
            f"kdops ab autoregressive {arm.name.partition('[')[0]} --host {e.host} --quick",
            (arm.lossless_why or "the token ids differ",),
        )
        for arm in (e.measurement.arms if e.measurement else ())
        if arm.lossless == "not lossless"
    )


def unproven_gain(e: Evidence) -> tuple[Finding, ...]:
    """AL alone is never believed: a better one needs the token check."""
    arms = [arm for arm in e.measurement.arms if arm.al is not None] if e.measurement else []
    seen = [
        f"{better.name}: AL {better.al:.2f} against {other.al:.2f} of {other.name}, tokens {better.lossless}"
        for better in arms
        for other in arms
        if better.al and other.al and better.al > _GAIN * other.al
        and better.algorithm == other.algorithm and better.graphs is not other.graphs
        and better.lossless not in (*_PROVEN, "not lossless")
    ]  # fmt: skip
    proven = any(arm.lossless in _PROVEN for arm in arms)
    for past in e.past:
        if (
            past.quantity == AL
            and len(past.before) >= 3
            and past.now > _GAIN * max(past.before)
            and not proven
        ):
            seen.append(f"AL {past.now:.2f}, never above {max(past.before):.2f} on this host before")
    if not seen:
        return ()
    return (
        Finding(
            "unproven-gain",
            "acceptance is suddenly better, and no token check proves it",
            Severity.WRONG,
            Confidence.POSSIBLE,
            "an engine that commits wrong tokens accepts more of them: the gain counts only if the tokens "
            "equal those of plain decoding",
            "do not rely on it before the check",
            f"kdops ab autoregressive {e.profile or 'ddtree'} --host {e.host} --quick",
            tuple(seen),
        ),
    )
