"""The host's record of deploys, whole and torn."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.host.audit import parse

pytestmark = pytest.mark.unit

LINE = {
    "transaction": "t", "result": "rolled-back", "release": "ddtree-1", "serves": "linear-2", "by": "guard",
    "at": "2026-01-31T10:00:00+00:00", "who": "ann", "why": "try\x1b[2J it",
    "seconds": {"starting": 30.4, "locked": 1},
    "failure": {"title": "not ready", "cause": "no memory"},
}  # fmt: skip


def test_a_deploy_in_one_line():
    (deploy,) = parse(json.dumps(LINE) + "\n")
    assert deploy.line == (
        "2026-01-31T10:00:00+00:00  rolled-back  ddtree-1  31 s  by ann  (try\\x1b[2J it)"
        "  - not ready: no memory"
    )


def test_a_torn_line_hides_no_other():
    whole = json.dumps(LINE)
    assert len(parse(f"{whole}\n{whole[:40]}\n{whole}\n{whole[:-1]}")) == 2


VALUES = st.none() | st.text() | st.floats() | st.lists(st.text())


@given(st.text() | st.dictionaries(st.sampled_from(sorted(LINE)), VALUES).map(json.dumps))
def test_no_line_breaks_the_history(text):
    for deploy in parse(text):
        deploy.line.encode()
