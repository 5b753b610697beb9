"""One screen: the ratio, what it is made of, what may be said."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from kdops.bench.results import ArmResult, Comparison, RunResult
from kdops.text import columns

_HEAD = ("SET", "ARM", "TOK/S", "AL", "STEP", "TTFT", "RATIO", "= AL ÷ STEP", "95 % INTERVAL", "CALL")
_TTFT = _HEAD.index("TTFT")


def screen(result: RunResult) -> list[str]:
    """Return everything that a terminal shows of a result: tables, then sentences of any length."""
    comparing = len(result.arms) > 1
    table = rows(result)
    if comparing:
        table = [row[:_TTFT] + row[_TTFT + 1 :] for row in table]
    lines = columns(lean(table), right=range(2, 7))
    streams = together(result)
    if len(streams) > 1:
        lines += ["", *columns(lean(streams), right=range(2, 6))]
    return [*lines, "", *verdicts(result)]


def lean(table: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Leave out columns without a value, and the name of a row that is the same as above."""
    kept = [i for i in range(len(table[0])) if any(row[i] not in ("", "-") for row in table[1:])]
    above = ["", *(row[0] for row in table)]
    named = [
        ("" if row[0] == before else row[0], *row[1:]) for row, before in zip(table, above, strict=False)
    ]
    return [tuple(row[i] for i in kept) for row in named]


def rows(result: RunResult) -> list[tuple[str, ...]]:
    """Return the table: one row for each prompt set and arm, cells as text."""
    found: list[tuple[str, ...]] = [_HEAD]
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
        return ("", "", "", "")
    ours, theirs = arm.per_set[name], base.per_set[name]
    ratio = ours.tokens_per_second / theirs.tokens_per_second
    length = (ours.acceptance_length or 1.0) / (theirs.acceptance_length or 1.0)
    one = result.per_set.get(arm.name, {}).get(name)
    return (
        f"{ratio:.3f}",
        f"{length:.2f} ÷ {length / ratio:.2f}",
        interval(one) if one else "-",
        str(one.call) if one else "",
    )


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
        lines.append(f"tokens of {arm.name}: {arm.lossless} ({arm.lossless_why})")
    for finding in sorted(result.findings, key=lambda one: not one.fatal):
        mark = "CHECK FAILED" if finding.fatal else "note"
        where = f" [{finding.where}]" if finding.where else ""
        lines.append(f"{mark}{where}: {finding.title}: {finding.evidence}")
    lines += [f"{arm.name}, context: {arm.context_words}" for arm in result.arms if arm.context_words]
    lines.append(f"sampling: {sampling(result)}")
    if result.quick and result.comparisons:
        lines.append("exploratory: one start an arm")
    return lines
