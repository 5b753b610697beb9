"""docs/failures.md has a heading for every class and finding, and for nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kdops import fleet
from kdops.cli.config import overrides
from kdops.diagnose.failures import CLASSES
from kdops.diagnose.rules.table import IDS

pytestmark = pytest.mark.unit

DOCS = Path(__file__).parent.parent.parent / "docs"
HEADINGS = re.findall(r"^### (\S+)$", (DOCS / "failures.md").read_text(), re.MULTILINE)


def test_headings_and_ids_are_the_same() -> None:
    ids = {*(one.id for one in CLASSES), *IDS}
    assert set(HEADINGS) - ids == set()
    assert ids - set(HEADINGS) == set()


def test_no_heading_comes_twice() -> None:
    assert len(set(HEADINGS)) == len(HEADINGS)


def test_links_lead_there() -> None:
    for one in CLASSES:
        path, _, anchor = one.link.partition("#")
        assert (DOCS.parent / path).is_file()
        assert anchor in HEADINGS


def test_an_environment_in_a_remedy_can_be_pasted_into_a_shell() -> None:
    host = fleet.load().one("b300")
    told = [one.remedy for one in CLASSES if "engine_environment=" in one.remedy]
    assert len(told) == 6
    text = " ".join((DOCS / "failures.md").read_text().split())
    for remedy in told:
        assert f"*Remedy:* {remedy}." in text
        pair = shlex.split(remedy.partition("--set ")[2].partition("}'")[0] + "}'")
        assert len(pair) == 1
        changed = fleet.engine_config(host, None, overrides(pair)).environment
        assert all(isinstance(value, str) for value in changed.values()) and len(changed) == 1
