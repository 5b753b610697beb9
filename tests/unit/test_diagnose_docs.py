"""docs/failures.md has a heading for every class and finding, and for nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
