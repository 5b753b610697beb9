"""The full report as one self-contained page: no script, no font, no address."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from kdops.bench.results import Call, GpuUse, Lossless, RunResult
from kdops.report import plots, terminal

_STYLE = Path(__file__).with_name("style.css").read_text()
_TONES = {
    Call.BETTER: "good",
    Call.WORSE: "bad",
    Call.EQUIVALENT: "even",
    Call.INCONCLUSIVE: "open",
    Lossless.IDENTICAL: "good",
    Lossless.EQUIVALENT: "good",
    Lossless.DIFFERENT: "bad",
    Lossless.UNDECIDED: "open",
    Lossless.UNCHECKED: "open",
}


def page(result: RunResult) -> str:
    """Return the page."""
    title = f"{', '.join(arm.name for arm in result.arms)} on {result.host}"
    sections = [
        *_verdicts(result),
        _lossless(result),
        *_findings(result),
        _section("Per prompt set", _table(terminal.lean(terminal.rows(result)), left=2)),
        f"<div class='plots'>{''.join(_plots(result))}</div>",
        *_together(result),
        *_gpus(result),
        _section("How it was measured", _method(result)),
    ]
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width,initial-scale=1'><style>{_STYLE}</style></head>"
        f"<body><header><h1>{escape(title)}</h1>"
        f"<p class='soft'>{escape(f'run {result.run}, {result.created}')}</p></header>"
        f"<main>{''.join(sections)}</main></body></html>\n"
    )


def _section(title: str, body: str, kind: str = "") -> str:
    named = f" class='{kind}'" if kind else ""
    return f"<section{named}><h2>{escape(title)}</h2>{body}</section>"


def _badge(words: str, tone: str) -> str:
    return f"<span class='badge {tone}'>{escape(words)}</span>"


def _table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """left: columns of words; the others hold numbers."""
    head, *body = rows

    def cells(row: Sequence[str], tag: str) -> str:
        kinds = (" class='w'" if i < left else "" for i in range(len(row)))
        return "".join(f"<{tag}{k}>{escape(cell)}</{tag}>" for k, cell in zip(kinds, row, strict=True))

    lines = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in body)
    top = f"<thead><tr>{cells(head, 'th')}</tr></thead>"
    return f"<div class='wide'><table>{top}<tbody>{lines}</tbody></table></div>"


def _verdicts(result: RunResult) -> list[str]:
    found = []
    for arm in result.arms[1:]:
        one = result.comparisons.get(arm.name)
        title = f"{arm.name} against {result.arms[0].name}"
        if one is None:
            body = (
                f"<p class='big'>{_badge('inconclusive', 'open')}</p><p>A prompt set is missing in a leg.</p>"
            )
        else:
            inside = f"95 % interval {terminal.interval(one)}" if one.low is not None else "one start an arm"
            body = (
                f"<p class='big'>{_badge(one.call, _TONES[one.call])} <b>×{one.ratio:.3f}</b> tokens/s "
                f"<span class='soft'>{escape(inside)}</span></p><p>{escape(one.why)}</p>"
            )
            body += "".join(f"<p class='soft'>{escape(words)}</p>" for words in terminal.resolution(one))
        found.append(_section(title, body, "card"))
    return found


def _lossless(result: RunResult) -> str:
    rows = "".join(
        f"<li>{_badge(arm.lossless, _TONES[arm.lossless])} <b>{escape(arm.name)}</b> "
        f"<span class='soft'>{escape(arm.lossless_why)}</span></li>"
        for arm in result.arms
    )
    return _section("Lossless", f"<ul class='plain'>{rows}</ul>")


def _findings(result: RunResult) -> list[str]:
    rows = [
        f"<li>{_badge(*(('check failed', 'bad') if one.fatal else ('note', 'even')))} "
        f"<b>{escape(one.title)}</b>: {escape(one.evidence)} "
        f"<span class='soft'>{escape(one.where)}</span></li>"
        for one in sorted(result.findings, key=lambda one: not one.fatal)
    ]
    return [_section("Checks", f"<ul class='plain'>{''.join(rows)}</ul>")] if rows else []


def _figure(title: str, plot: str, words: str = "") -> str:
    told = f"<figcaption>{escape(words)}</figcaption>" if words else ""
    return f"<figure><h2>{escape(title)}</h2>{plot}{told}</figure>"


def _plots(result: RunResult) -> list[str]:
    sets = [name for name in result.plan["sets"] if any(name in arm.per_set for arm in result.arms)]
    found = []
    for name, primary in result.comparisons.items():
        rows = [("all sets", primary.ratio, primary.low, primary.high)]
        rows += [(s, one.ratio, one.low, one.high) for s, one in result.per_set.get(name, {}).items()]
        title = f"tokens/s of {name} over {result.arms[0].name}"
        words = "95 % intervals over legs; within the band arms are equivalent. Sets are Holm-adjusted calls."
        found.append(_figure(title, plots.ratios(rows, title), words))
    counted = [(arm.name, _pooled(result, arm.name, sets)) for arm in result.arms]
    if any(cells for _, cells in counted):
        title = "Tokens committed by a step"
        words = "Prompt sets together; the mean is the acceptance length (AL)."
        found.append(_figure(title, plots.commits([one for one in counted if one[1]], title), words))
    if any(arm.context for arm in result.arms):
        found.append(_context(result))
    if len(result.leg_rates) > 1:
        title = "Throughput over the run"
        plot = plots.drift(result.order, result.leg_rates, [arm.name for arm in result.arms], title)
        found.append(
            _figure(
                title, plot, "Geometric mean over the prompt sets of each leg. The axis does not begin at 0."
            )
        )
    if any(arm.per_set[name].gaps for arm in result.arms for name in sets if name in arm.per_set):
        title = "Time between arrivals"
        words = "Each arrival brings the tokens of one step. Thick: middle half; thin: 5 to 95 %; tick: 99 %."
        found.append(_figure(title, plots.gaps(result.arms, sets, title), words))
    return found


def _pooled(result: RunResult, name: str, sets: Sequence[str]) -> list[int]:
    arm = next(arm for arm in result.arms if arm.name == name)
    cells = [arm.per_set[s].histogram for s in sets if s in arm.per_set]
    return [sum(one[i] for one in cells if i < len(one)) for i in range(max(map(len, cells), default=0))]


def _context(result: RunResult) -> str:
    title = "Step time against context"
    told = [f"{arm.name}: {arm.context_words}." for arm in result.arms if arm.context_words]
    floor = next((arm.floor for arm in result.arms if arm.floor), None)
    if floor:
        told.append(f"Dashed: the bytes of a step over the memory bandwidth of one {floor.gpu}.")
    else:
        told.append("No byte floor: the model's bytes or this device's bandwidth are not known.")
    return _figure(title, plots.context(result.arms, title), " ".join(told))


def _together(result: RunResult) -> list[str]:
    rows = terminal.together(result)
    return (
        [_section("Several streams, mean over legs", _table(terminal.lean(rows), left=2))]
        if len(rows) > 1
        else []
    )


def _gpus(result: RunResult) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("LEG", "ARM", "GPUS", "SM CLOCK", "POWER", "TEMPERATURE", "BUSY", "MEMORY", "HELD BACK BY")
    ]
    for i, use in enumerate(result.leg_gpus):
        if use:
            rows.append((str(i + 1), result.order[i], *_gpu_cells(use)))
    return [_section("GPUs of each leg", _table(terminal.lean(rows), left=2))] if len(rows) > 1 else []


def _gpu_cells(use: GpuUse) -> tuple[str, ...]:
    def cell(value: float | None, unit: str) -> str:
        return "-" if value is None else f"{value:.0f} {unit}"

    busy = "-" if use.busy is None else f"{use.busy:.0%}"
    clock, power = cell(use.sm_clock, "MHz"), cell(use.power, "W")
    held = ", ".join(use.reasons) or "-"
    return (str(use.gpus), clock, power, cell(use.temperature, "°C"), busy, cell(use.memory, "MiB"), held)


def _method(result: RunResult) -> str:
    plan = result.plan
    told = [
        f"Legs, in an order drawn with seed {plan.get('seed')}: {', '.join(result.order)}.",
        f"Workload {str(plan['workload'])[:12]}: {', '.join(plan['sets'])}. Fixed length; sampling: "
        f"{terminal.sampling(result)}.",
        "AL is 1 + accepted drafts / verify steps; tokens/s = AL ÷ step time. Speed is taken between the "
        "first and the last arrival of each stream, so prefill is not in it.",
    ]
    arms = [("ARM", "PROFILE", "OVERRIDES", "RELEASE")]
    for arm in plan["arms"]:
        overrides = ", ".join(f"{k}={v}" for k, v in (arm.get("overrides") or {}).items()) or "-"
        arms.append((arm["name"], arm["profile"], overrides, arm["release"]))
    return "".join(f"<p>{escape(words)}</p>" for words in told) + _table(arms, left=4)
