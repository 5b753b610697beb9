"""One screen: the ratio, what it is made of, what may be said."""

from __future__ import annotations

from statistics import fmean

from kdops.bench.results import ArmResult, Comparison, RunResult


def rows(result: RunResult) -> list[tuple[str, ...]]:
    """Return the table: one row for each prompt set and arm, cells as text."""
    found: list[tuple[str, ...]] = [
        ("SET", "ARM", "TOK/S", "AL", "STEP", "TTFT", "RATIO", "95 % INTERVAL", "CALL")
    ]
    sets = list(result.arms[0].per_set)
    for name in sets:
        for arm in result.arms:
            if name in arm.per_set:
                found.append((name, arm.name, *_cells(arm, name), *_against(result, arm, name)))
    return found


def together(result: RunResult) -> list[tuple[str, ...]]:
    """Return the table of the stages with several streams: one row for each of them and each arm."""
    found: list[tuple[str, ...]] = [("STREAMS", "ARM", "TOK/S", "TOK/S A STREAM", "TTFT", "STARTED LATE")]
    kinds = {(one.level, one.rate) for arm in result.arms for one in arm.together}
    for level, rate in sorted(kinds, key=lambda kind: (kind[0], kind[1] or 0.0)):
        for arm in result.arms:
            legs = [one for one in arm.together if (one.level, one.rate) == (level, rate)]
            if legs:
                streams = f"{level} at once" if level else f"{rate:g} a second"
                late = [one.late for one in legs if one.late is not None]
                found.append(
                    (
                        streams,
                        arm.name,
                        f"{fmean(one.tokens_per_second for one in legs):.1f}",
                        f"{fmean(one.per_stream for one in legs):.1f}",
                        milliseconds(fmean(one.ttft for one in legs)),
                        milliseconds(max(late) if late else None),
                    )
                )
    return found


def _cells(arm: ArmResult, name: str) -> tuple[str, ...]:
    rate = arm.per_set[name]
    length = f"{rate.acceptance_length:.2f}" if rate.acceptance_length else "-"
    return (f"{rate.tokens_per_second:.1f}", length, milliseconds(rate.step_time), milliseconds(rate.ttft))


def milliseconds(seconds: float | None) -> str:
    """Return seconds as a cell."""
    return "-" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _against(result: RunResult, arm: ArmResult, name: str) -> tuple[str, ...]:
    base = result.arms[0]
    if arm is base or name not in base.per_set:
        return ("", "", "")
    ratio = arm.per_set[name].tokens_per_second / base.per_set[name].tokens_per_second
    one = result.per_set.get(arm.name, {}).get(name)
    return (f"{ratio:.3f}", interval(one) if one else "-", str(one.call) if one else "")


def interval(one: Comparison) -> str:
    """Return the 95 % interval of the ratio as a cell."""
    return "-" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"


def resolution(one: Comparison) -> list[str]:
    """Return what the run could have seen, nothing for one start an arm."""
    if one.leg_sd is None or one.smallest_effect is None:
        return []
    needed = one.legs_for_5_percent or "more than 200"
    return [
        f"leg SD {one.leg_sd:.1%}; smallest effect this run could see {one.smallest_effect:.1%}; "
        f"legs an arm for 5 %: {needed}"
    ]


def sampling(result: RunResult) -> str:
    """Return how the prompt sets were sampled: once if all alike, else set by set."""
    told = {name: one.words() for name, one in result.sampling.items()}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{name} {words}" for name, words in told.items())


def verdicts(result: RunResult) -> list[str]:
    """Return the sentences under the table: verdict and why for each candidate, losslessness, findings."""
    base = result.arms[0].name
    lines = [
        f"{arm.name} against {base}: INCONCLUSIVE: a prompt set is missing in a leg"
        for arm in result.arms[1:]
        if arm.name not in result.comparisons
    ]
    for name, one in result.comparisons.items():
        lines.append(f"{name} against {base}: {one.call.upper()}: {one.why}")
        if one.low is not None:
            lines.append(f"  tokens/s ×{one.ratio:.3f} ({interval(one)}), {one.legs[0]} + {one.legs[1]} legs")
        lines += [f"  {words}" for words in resolution(one)]
    for arm in result.arms:
        lines.append(f"{arm.name}: {arm.lossless} ({arm.lossless_why})")
        if arm.context_words:
            lines.append(f"{arm.name}, context: {arm.context_words}")
    lines.append(f"sampling: {sampling(result)}")
    for finding in result.findings:
        mark = "CHECK FAILED" if finding.fatal else "note"
        where = f" [{finding.where}]" if finding.where else ""
        lines.append(f"{mark}{where}: {finding.title}: {finding.evidence}")
    if result.quick and result.comparisons:
        lines.append("exploratory: one start an arm")
    return lines
