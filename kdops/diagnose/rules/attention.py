"""Attention that costs more than reading its bytes."""

from __future__ import annotations

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.finding import Confidence, Finding, Severity
from kdops.diagnose.rules import slopes
from kdops.diagnose.rules.ends import ends
from kdops.diagnose.rules.slopes import Line

_TIMES_FLOOR = 10
"""Stock verify was measured 700 times above the floor, a split kernel 1.2 to 4 times."""
_GROWS, _STRAIGHT = 1.3, 0.8
_DECIDES = 3
_MEASURED_ON = "h200-sxm"


def verify_not_split(e: Evidence) -> tuple[Finding, ...]:
    """The step-time slope is many times the floor."""
    steep = [line for line in slopes.lines(e) if _steep(line, e)]
    if not steep:
        return ()
    worst = max(steep, key=lambda line: line.slope)
    own = _setting(worst, e, "verify_attention") == "kdtree"
    if own:
        return (_own_kernel(worst, e),)
    decided = _decided(e)
    seen = [worst.words(), *_floor_words(worst, e), *decided, *_idle(e)]
    excluded = [
        "drafter and acceptance: AL does not enter the step time",
        "reasoning and tool-call parsers: they cost the same at every context",
    ]
    page = _page_size(e)
    if page:
        excluded.append(page)
    open_ = "" if page else "; whether the page size plays a part here is not known"
    return (
        Finding(
            "verify-not-split",
            "step time grows with context: verify attention is not split over the KV cache",
            Severity.SLOW,
            Confidence.CERTAIN if decided else Confidence.PROBABLE,
            "each program of the stock verify kernel walks the whole prefix alone, so a step waits for a few "
            f"programs while the rest of the GPU idles{open_}",
            "engine_verify_attention: kdtree, which is split over the KV cache",
            "" if decided else _experiment(e),
            tuple(seen),
            tuple(excluded),
        ),
    )


def step_time_growth(e: Evidence) -> tuple[Finding, ...]:
    """Steps become slower while one answer is written."""
    if not e.journal or not e.floor:
        return ()
    found = [ends(generation, lambda w: w.step_time, 1000) for generation in e.journal.generations]
    least = _TIMES_FLOOR * e.floor
    steep = [s for s in found if s and s.growth > _GROWS and (s.last - s.first) / s.tokens > least]
    if not steep:
        return ()
    worst = max(steep, key=lambda one: one.growth)
    return (
        Finding(
            "step-time-growth",
            "steps become slower within one generation",
            Severity.SLOW,
            Confidence.CERTAIN,
            "the context grows with each token, and something in a step takes time for each of them",
            "see the finding on attention; a two-point measurement of 200 tokens cannot show it",
            f"kdops bench {e.host}",
            (
                f"{worst.first * 1e3:.1f} ms a step at {worst.begin:,} tokens, "
                f"{worst.last * 1e3:.1f} ms at {worst.end:,}",
            ),
        ),
    )


def _steep(line: Line, e: Evidence) -> bool:
    if line.growth < _GROWS or line.fit < _STRAIGHT:
        return False
    if e.floor:
        return line.slope >= _TIMES_FLOOR * e.floor
    plain = slopes.plain(e)
    return bool(plain and plain.slope > 0 and line.slope >= _TIMES_FLOOR * plain.slope)


def _floor_words(line: Line, e: Evidence) -> list[str]:
    seen = []
    if e.floor:
        gpu = f" on {e.gpu.name}" if e.gpu else ""
        seen.append(
            f"reading the KV cache takes {e.floor * 1e6:.4f} ms each 1,000 tokens{gpu}: "
            f"{line.slope / e.floor:,.0f} times less"
        )
    if (plain := slopes.plain(e)) and plain.slope > 0:
        seen.append(f"plain decoding: {plain.slope * 1e6:.2f} ms each 1,000 tokens")
    return seen


def _decided(e: Evidence) -> list[str]:
    """Return the comparison of both kernels on this host, if one was made and is clear."""
    by_kernel: dict[str, list[Line]] = {}
    for line in slopes.lines(e):
        by_kernel.setdefault(_of_arm(line.arm, "verify_attention"), []).append(line)
    stock, own = by_kernel.get("stock"), by_kernel.get("kdtree")
    if not stock or not own:
        return []
    ratio = min(line.slope for line in stock) / max(max(line.slope for line in own), 1e-12)
    return (
        [f"the split kernel's slope is {ratio:.0f} times smaller on this host"] if ratio >= _DECIDES else []
    )


def _page_size(e: Evidence) -> str:
    """Return why the page size is out, or nothing: what holds for one kernel and GPU is not carried over."""
    by_page = {
        _of_arm(line.arm, "page_size"): line.slope for line in slopes.lines(e) if "page_size=" in line.arm
    }
    if len(by_page) > 1 and max(by_page.values()) < 1.1 * min(by_page.values()):
        return f"page size: {' and '.join(sorted(by_page))} give the same slope on this host"
    if e.gpu and e.gpu.id == _MEASURED_ON:
        return "page size: contiguous and shuffled pages were under 1 % apart for this kernel on this GPU"
    return ""


def _experiment(e: Evidence) -> str:
    profile = e.profile if e.profile in ("linear", "ddtree", "ddtree-chain") else "linear"
    return (
        f"kdops ab {profile} --host {e.host} --quick --set engine_verify_attention=stock,kdtree"
        " --set engine_page_size=1,64"
    )


def _own_kernel(line: Line, e: Evidence) -> Finding:
    return Finding(
        "slope-above-floor",
        "step time grows with context although verify attention is split",
        Severity.SLOW,
        Confidence.POSSIBLE,
        "the drafter attends to the whole context, or host work grows with it",
        "engine_draft_window: 2048 bounds the drafter's share",
        f"kdops ab {line.arm.partition('[')[0] or 'linear'} --host {e.host} --quick"
        " --set engine_draft_window=2048,8192",
        (line.words(), *_floor_words(line, e)),
        ("the stock verify kernel: engine_verify_attention is kdtree",),
    )


def _idle(e: Evidence) -> list[str]:
    busy = [gpu.busy for gpu in e.gpus if gpu.busy is not None and gpu.working]
    return [f"GPUs busy {sum(busy) / len(busy):.0%} meanwhile"] if busy and max(busy) < 0.5 else []


def _setting(line: Line, e: Evidence, name: str) -> str:
    return _of_arm(line.arm, name) or str(e.setting(name) or "")


def _of_arm(arm: str, name: str) -> str:
    """Return the value in an arm's name, such as linear[page_size=1]."""
    pairs = arm.partition("[")[2].rstrip("]").split(",")
    return dict(pair.partition("=")[::2] for pair in pairs).get(name, "")
