"""What is broken or odd: the guard and releases on the host, a link, the file with the API key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.deploy.bundle import Bundle
from kdops.deploy.client import ask
from kdops.deploy.guard_call import document
from kdops.deploy.key_file import usable
from kdops.deploy.playbook import _event
from kdops.deploy.rollback import choose
from kdops.errors import ExitCode, KdopsError, UsageError

pytestmark = pytest.mark.unit


@dataclass(frozen=True)
class Said:
    """What a host answered to the call of its guard."""

    code: int
    text: str
    stderr: bytes

    def run(self, argv: list[str], *, stdin: bytes = b"", timeout: float = 30.0, check: bool = False) -> Said:
        return self


@pytest.mark.parametrize(
    "said",
    [
        Said(0, "", b""),
        Said(1, "", b"SyntaxError: cut short"),
        Said(0, "[]", b""),
        Said(0, '{"ok": true}', b""),
        Said(0, '{"ok": true, "committed": [], "guard": "x"}', b""),
    ],
)
def test_a_damaged_guard_is_installed_anew(said: Said) -> None:
    made = ask(said, Bundle("linear-1", "u.service", "lab0", None, None, None))
    assert not made.empty
    assert "damaged" in made.changes[0]


ODD = st.none() | st.booleans() | st.integers(-1, 200) | st.text(max_size=5) | st.lists(st.none(), max_size=2)


@given(st.dictionaries(st.sampled_from(["title", "cause", "remedy", "code", "evidence", "x"]), ODD))
def test_an_error_of_another_guard_is_told_as_far_as_it_goes(words: dict[str, Any]) -> None:
    for answer in ({"ok": False, "error": words}, {"ok": False}, {"ok": 0, "error": words.get("title")}):
        with pytest.raises(KdopsError) as caught:
            document(answer)
        error = caught.value
        assert error.title and error.cause and error.remedy and error.code in set(ExitCode) - {ExitCode.OK}


def test_a_release_whose_folder_is_gone_is_no_rollback_target() -> None:
    committed = [{"release": name, "unit": "u.service"} for name in ("a-1", "unit:old.service", "c-3")]
    found: dict[str, Any] = {"committed": committed, "releases": ["c-3"]}
    assert choose("h", "s", found, None).release == "unit:old.service"
    with pytest.raises(UsageError, match="a-1 is no longer on the host"):
        choose("h", "s", found, "a-1")
    assert choose("h", "s", {**found, "releases": ["a-1", "c-3"]}, "a-1").release == "a-1"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (
            {"msg": "All items completed", "results": [{}, {"unreachable": True, "msg": "Broken pipe"}]},
            "Broken pipe",
        ),
        ({"msg": "no", "results": [{"failed": False, "msg": "fine"}]}, "no"),
        ({"msg": "alone"}, "alone"),
        ({}, ""),
    ],
)
def test_a_loop_tells_what_its_item_said(result: dict[str, Any], said: str) -> None:
    event = _event({"event": "runner_on_unreachable", "event_data": {"task": "t", "res": result}})
    assert event is not None
    assert event.message == said


@pytest.mark.parametrize("content", [b"two words", b"two\nlines", b"\xff\xfe", b"\x00", "kéy".encode()])
def test_an_api_key_no_header_can_carry_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UsageError, match="holds no key"):
        usable(str(tmp_path / "key"))


def test_an_endless_api_key_file_is_not_read() -> None:
    with pytest.raises(UsageError, match="is no file"):
        usable("/dev/zero")
