"""The guard's command line: one JSON document whatever comes in, and the documented exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from guard_host import GuardHost, make_host
from hypothesis import given
from hypothesis import strategies as st

from kdops.errors import UsageError
from kdops.guard.main import main
from kdops.guard.request import parse
from kdops.guard.smoke import compare, pool_too_small

pytestmark = pytest.mark.unit
GOOD = {"id": "c1", "release": "linear-1", "unit": "kdtree-lab.service", "service": "lab"}
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture
def host(tmp_path: Path) -> GuardHost:
    return make_host(tmp_path)


def call(
    host: GuardHost, monkeypatch: pytest.MonkeyPatch, capsys: Any, *arguments: str, stdin: str = ""
) -> tuple[int, Any]:
    monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    code = main(arguments, host.ctx)
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("stdin", ["", "null", "[]", "{", "{}", '{"id": 5}', '{"id": NaN}', "\x00"])
def test_bad_requests_are_usage_errors_and_change_nothing(
    host: GuardHost, monkeypatch: pytest.MonkeyPatch, capsys: Any, stdin: str
) -> None:
    code, answer = call(host, monkeypatch, capsys, "begin", stdin=stdin)
    assert (code, answer["ok"]) == (2, False)
    assert not host.layout.transaction.exists()


def test_status_of_an_empty_host(host: GuardHost, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code, answer = call(host, monkeypatch, capsys, "status")
    assert (code, answer["committed"], answer["transaction"]) == (0, [], None)


def test_second_client_gets_exit_code_four(
    host: GuardHost, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert call(host, monkeypatch, capsys, "begin", stdin=json.dumps(GOOD))[0] == 0
    code, answer = call(host, monkeypatch, capsys, "begin", stdin=json.dumps({**GOOD, "id": "c2"}))
    assert (code, answer["error"]["code"]) == (4, 4)


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"version": 1}', "\xff\x00"])
def test_unreadable_state_stops_everything_with_words(
    host: GuardHost, monkeypatch: pytest.MonkeyPatch, capsys: Any, content: str
) -> None:
    host.layout.state.mkdir(parents=True)
    host.layout.transaction.write_text(content)
    code, answer = call(host, monkeypatch, capsys, "begin", stdin=json.dumps(GOOD))
    assert code == 1
    assert "unreadable" in answer["error"]["title"]
    assert host.layout.transaction.read_text() == content


@pytest.mark.parametrize(
    "line", ["null", "1", "[1]", '{"result": "committed", "seconds": 5}', "{", "[" * 100_000]
)
def test_a_damaged_audit_line_stops_nothing(
    host: GuardHost, monkeypatch: pytest.MonkeyPatch, capsys: Any, line: str
) -> None:
    host.layout.state.mkdir(parents=True)
    good = {"result": "committed", "seconds": {"starting": 7.5}}
    odd = {"result": "committed", "seconds": {"starting": "x"}}
    host.layout.audit.write_text(f"{line}\n{json.dumps(good)}\n{json.dumps(odd)}\n")
    code, answer = call(host, monkeypatch, capsys, "begin", stdin=json.dumps(GOOD))
    assert (code, answer["changed"], answer["loads"]) == (0, True, [7.5])


def test_a_failure_nobody_foresaw_is_a_document_too(
    host: GuardHost, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    host.layout.transaction.mkdir(parents=True)
    code, answer = call(host, monkeypatch, capsys, "begin", stdin=json.dumps(GOOD))
    assert (code, answer["ok"], answer["error"]["code"]) == (1, False, 1)
    assert "Is a directory" in answer["error"]["cause"]


@given(st.dictionaries(st.sampled_from([*GOOD, "lease", "why", "force", "adopt", "x"]), VALUES) | VALUES)
def test_any_request_is_parsed_or_refused_with_words(raw: Any) -> None:
    try:
        request = parse(raw)
    except UsageError as error:
        assert error.cause
    else:
        assert isinstance(request.id, str)


@pytest.mark.parametrize("name", ["../../etc", "a b", "-x", "", "a\n", "x" * 200])
@pytest.mark.parametrize("field", ["id", "release", "unit", "service"])
def test_names_cannot_leave_their_folder(field: str, name: str) -> None:
    with pytest.raises(UsageError):
        parse({**GOOD, field: name})


@pytest.mark.parametrize(
    ("wanted", "actual", "same"),
    [
        (0.9, 0.9, True),
        (0.9, 0.83, False),
        (8, 8.0, True),
        (1, True, True),
        ("fp8", "auto", False),
        (None, None, True),
        (None, "DFLASH", False),
        (16, None, False),
    ],
)
def test_effective_settings_are_compared_by_value(wanted: Any, actual: Any, same: bool) -> None:
    assert (compare({"x": wanted}, {"x": actual}) == []) is same


@pytest.mark.parametrize(
    ("pool", "context", "small"),
    [(60_000, 160_000, True), (8192, 8192, False), (8191, 8192, True), (None, 8192, False), (5, None, False)],
)
def test_a_pool_below_the_longest_request_is_unhealthy(pool: Any, context: Any, small: bool) -> None:
    told = pool_too_small({"max_total_num_tokens": pool, "context_length": context})
    assert bool(told) is small
    assert not small or f"a request may have {context} tokens, the pool holds {pool}" in told
