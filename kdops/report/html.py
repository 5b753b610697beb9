"""The full report as one self-contained page: no script, no font, no address."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from kdops.bench.results import RunResult
from kdops.report import svg, terminal

_STYLE = Path(__file__).with_name("style.css").read_text()


def page(result: RunResult) -> str:
    """Return the page."""
    title = f"{', '.join(arm.name for arm in result.arms)} on {result.host}"
    kept = f"run {result.run}, {result.created}, workload {str(result.plan['workload'])[:12]}"
    lines = [f"<li{_class(line)}>{escape(line)}</li>" for line in terminal.verdicts(result)]
    sections = [
        f"<section><h2>Verdict</h2><ul>{''.join(lines)}</ul></section>",
        f"<section><h2>Per prompt set</h2><div class='wide'>{_table(terminal.rows(result))}</div></section>",
        *_ratios(result),
        *_histograms(result),
        *_context(result),
        *_drift(result),
    ]
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{escape(title)}</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p class='soft'>{escape(kept)}</p>{''.join(sections)}</body></html>\n"
    )


def _class(line: str) -> str:
    return ' class="bad"' if line.startswith("CHECK FAILED") or "not lossless" in line else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = rows
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in body)
    body_rows = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body_rows}</tbody></table>"


def _section(title: str, plot: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{plot}</section>"


def _ratios(result: RunResult) -> list[str]:
    found = []
    for name, primary in result.comparisons.items():
        rows = [("all sets", primary.ratio, primary.low, primary.high)]
        rows += [(s, one.ratio, one.low, one.high) for s, one in result.per_set.get(name, {}).items()]
        title = f"tokens/s of {name} over {result.arms[0].name}, 95 % intervals over legs"
        found.append(_section(title, svg.ratios(rows, title)))
    return found


def _histograms(result: RunResult) -> list[str]:
    found = []
    for arm in result.arms:
        cells = [rate.histogram for rate in arm.per_set.values() if rate.histogram]
        if cells:
            longest = max(map(len, cells))
            counts = [sum(one[i] for one in cells if i < len(one)) for i in range(longest)]
            title = f"{arm.name}: tokens committed by a step"
            found.append(_section(title, svg.histogram(counts, title)))
    return found


def _context(result: RunResult) -> list[str]:
    series = [(arm.name, [(p.prompt_tokens, p.step_time * 1e3) for p in arm.context]) for arm in result.arms]
    if not any(points for _, points in series):
        return []
    told = [f"{arm.name}: {arm.context_words}" for arm in result.arms if arm.context_words]
    words = "".join(f"<p>{escape(line)}</p>" for line in told)
    plot = svg.scatter(series, "step time against context", ("prompt tokens", "ms"))
    return [_section("Step time against context", plot + words)]


def _drift(result: RunResult) -> list[str]:
    if len(result.leg_rates) < 2:
        return []
    series = [
        (arm.name, [(i + 1.0, r) for i, r in enumerate(result.leg_rates) if result.order[i] == arm.name])
        for arm in result.arms
    ]
    plot = svg.scatter(series, "tokens/s over the run", ("legs", "tokens/s"))
    return [_section("Over the run: geometric mean tokens/s of each leg", plot)]
