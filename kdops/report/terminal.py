"""One screen: the ratio, what it is made of, what may be said."""

from __future__ import annotations

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
        if one.leg_sd is not None and one.smallest_effect is not None:
            needed = one.legs_for_5_percent or "more than 200"
            lines.append(
                f"  leg SD {one.leg_sd:.1%}; smallest effect this run could see {one.smallest_effect:.1%}; "
                f"legs an arm for 5 %: {needed}"
            )
    for arm in result.arms:
        lines.append(f"{arm.name}: {arm.lossless} ({arm.lossless_why})")
        if arm.context_words:
            lines.append(f"{arm.name}, context: {arm.context_words}")
    for finding in result.findings:
        mark = "CHECK FAILED" if finding.fatal else "note"
        where = f" [{finding.where}]" if finding.where else ""
        lines.append(f"{mark}{where}: {finding.title}: {finding.evidence}")
    if result.quick and result.comparisons:
        lines.append("exploratory: one start an arm")
    return lines
