"""The report in a real browser: light, dark, on paper, on a telephone."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ab_result import result
from browser import Browser, chromium

from kdops.report.html import page

pytestmark = pytest.mark.lab
PLOTS = [
    "tokens/s of ddtree over linear",
    "tokens/s of ddtree[tree_budget=16] over linear",
    "Tokens committed by a step",
    "Step time against context",
    "Throughput over the run",
    "Time between arrivals",
]

# Every text's colour against the nearest background that is painted (WCAG 2.1, relative luminance).
CONTRAST = """(() => {
  const parts = c => c.match(/[0-9.]+/g).map(Number);
  const lum = c => parts(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (parts(c)[3] !== 0) return c; } return 'rgb(255, 255, 255)'; };
  const found = [];
  for (const e of document.querySelectorAll('h1,h2,p,td,th,li,span,b,figcaption,text')) {
    if (!e.textContent.trim()) continue;
    const style = getComputedStyle(e), ink = e.tagName === 'text' ? style.fill : style.color;
    const [a, b] = [lum(ink), lum(ground(e))], ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    found.push([ratio, e.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0])[0];
})()"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Texts of a plot that leave it, or lie on one another.
PLOT_FAULTS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')];
  const boxes = texts.map(t => [t.textContent, t.getBoundingClientRect()]);
  const out = boxes.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1
    || b.top < frame.top - 1 || b.bottom > frame.bottom + 1).map(([t]) => 'outside: ' + t);
  const over = boxes.flatMap(([t, a], i) => boxes.slice(i + 1).filter(([, b]) => a.left < b.right - 2
    && b.left < a.right - 2 && a.top < b.bottom - 4 && b.top < a.bottom - 4).map(([u]) => t + ' on ' + u));
  return [...out, ...over];
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(result(("ddtree", "ddtree[tree_budget=16]"))), encoding="utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "telephone"])
def test_everything_is_there_and_readable(browser: Browser, report: Path, width: int, dark: bool) -> None:
    browser.open(report, width=width, dark=dark)
    assert browser.errors == []
    assert (
        browser.ask("[...document.querySelectorAll('svg')].map(s => s.getAttribute('aria-label'))") == PLOTS
    )
    assert browser.ask("[...document.querySelectorAll('svg')].every(s => s.clientHeight > 120)")
    assert browser.ask(OVERFLOW) <= 0, "the page itself never scrolls sideways"
    assert browser.ask(PLOT_FAULTS) == []
    ratio, text = browser.ask(CONTRAST)
    assert ratio >= 4.5, f"{text!r} has a contrast of {ratio:.1f}"
    paper: Any = browser.ask("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark


def test_on_paper_it_is_black_on_white_and_whole(browser: Browser, report: Path) -> None:
    browser.open(report, width=720, dark=True, media="print")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.ask("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert browser.ask(OVERFLOW) <= 0
    assert browser.ask(CONTRAST)[0] >= 4.5
    printed = base64.b64decode(browser.call("Page.printToPDF", printBackground=False)["data"])
    assert printed.startswith(b"%PDF-") and len(printed) > 20_000


def test_words_of_a_host_stay_words(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "evil.html"
    path.write_text(page(replace(result(), host="<script>throw Error(1)</script><img src=http://x/>")))
    browser.open(path, width=1280)
    assert browser.errors == [] and browser.ask("document.querySelectorAll('script,img').length") == 0
