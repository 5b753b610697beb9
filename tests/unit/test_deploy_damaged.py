"""What is broken on the host by hand: its guard, its releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from kdops.deploy.bundle import Bundle
from kdops.deploy.client import ask
from kdops.deploy.rollback import choose
from kdops.errors import UsageError

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
    "said", [Said(0, "", b""), Said(1, "", b"SyntaxError: cut short"), Said(0, "[]", b"")]
)
def test_a_damaged_guard_is_installed_anew(said: Said) -> None:
    made = ask(said, Bundle("linear-1", "u.service", "lab0", None, None, None))
    assert not made.empty
    assert "damaged" in made.changes[0]


def test_a_release_whose_folder_is_gone_is_no_rollback_target() -> None:
    committed = [{"release": name, "unit": "u.service"} for name in ("a-1", "unit:old.service", "c-3")]
    found: dict[str, Any] = {"committed": committed, "releases": ["c-3"]}
    assert choose("h", "s", found, None).release == "unit:old.service"
    with pytest.raises(UsageError, match="a-1 is no longer on the host"):
        choose("h", "s", found, "a-1")
    assert choose("h", "s", {**found, "releases": ["a-1", "c-3"]}, "a-1").release == "a-1"
