"""What the evidence shows, one line a source: for readers of findings, and of none."""

from __future__ import annotations

from collections.abc import Iterator

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.rules import slopes


def seen(e: Evidence) -> tuple[str, ...]:
    """Return the lines; nothing without evidence."""
    return tuple(_lines(e))


def _lines(e: Evidence) -> Iterator[str]:
    if e.unit and e.unit.active:
        yield f"unit {e.unit.active}, restarts {e.unit.restarts}"
    if e.journal:
        yield from _journal(e)
    if (c := e.counters) and c.steps:
        al = f", AL {1 + sum(c.at) / c.steps:.2f}" if c.at else ""
        shares = " ".join(f"{count / c.steps:.2f}" for count in c.at)
        yield f"counters since start: {c.steps:,} steps{al}, accepted at each position: {shares or '-'}"
    for arm, stretches in slopes.speculating(e.stretches).items():
        sets = [s for s in stretches if s.text not in ("context", "long")]
        if sets:
            words = ", ".join(f"{s.text or 'request'} {s.acceptance_length:.2f}" for s in sets[:6])
            yield f"{sets[0].source} {arm}: AL {words}"
    for line in slopes.lines(e):
        floor = f", {line.slope / e.floor:.1f} times the floor" if e.floor else ""
        yield f"step time {line.words()}{floor}"
    busy = [gpu.busy for gpu in e.gpus if gpu.busy is not None and gpu.working]
    power = [gpu.power for gpu in e.gpus if gpu.power is not None and gpu.working]
    if busy:
        watts = f", {sum(power) / len(power):.0f} W" if power else ""
        yield f"GPUs busy {sum(busy) / len(busy):.0%}{watts}"
    for change in e.changes:
        yield f"since the last good release: {change.setting} {change.before} → {change.after}"
    for past in e.past:
        if past.before:
            low, high = (past.words(end(past.before)) for end in (min, max))
            spread = low if low == high else f"{low} to {high}"
            yield f"{past.quantity} {past.words(past.now)}, on this host before {spread}"


def _journal(e: Evidence) -> Iterator[str]:
    j = e.journal
    assert j is not None
    if j.starts:
        yield f"last start took {j.starts[-1]:.0f} s"
    if j.pool and j.context:
        yield f"KV pool {j.pool:,} tokens, context {j.context:,}"
    windows = [w for generation in j.generations for w in generation]
    if windows:
        times = sorted(w.step_time for w in windows)
        lengths = [w.acceptance_length for w in windows if w.acceptance_length]
        al = f", SGLang's accept length {sum(lengths) / len(lengths):.2f}" if lengths else ""
        step = times[len(times) // 2] * 1e3
        yield f"{len(windows)} decode windows of single streams: {step:.1f} ms a step{al}"
    if j.tree:
        means = f"commit {j.tree.commit:.2f}, depth {j.tree.depth:.2f}, {j.tree.rows} rows"
        yield f"{j.tree.lines} DDTREE lines: {means}"
    if logged := j.logged:
        share = f"{logged.coverage(e.asked_tokens):.0%}" if e.asked_tokens else "unknown"
        al = f"AL {logged.acceptance_length:.2f}"
        yield f"{logged.steps} logged steps commit {logged.committed:,} tokens: {al}, coverage {share}"
