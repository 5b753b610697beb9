"""The options of the pinned SGLang's parser: a wrong one is known before the old engine is stopped.

`sglang-0.5.23-options.json` holds every option with its attribute, whether it is a switch, and its choices.
For another version: build `argparse.ArgumentParser()`, call `ServerArgs.add_cli_args` on it in that version's
environment, and write `dest`, `switch` and `choices` of each action by option name.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kdops.fleet.problems import nearest

VERSION = "0.5.23"
_OWN = "ddtree-"
"""Options with this beginning are kdtree-engine's: SGLang's own parser does not know them."""


@functools.cache
def shipped() -> Mapping[str, Mapping[str, Any]]:
    """Return option (with dashes) → {dest, switch, choices} of SGLang 0.5.23."""
    file = Path(__file__).with_name(f"sglang-{VERSION}-options.json")
    found: Mapping[str, Mapping[str, Any]] = json.loads(file.read_text())
    return found


def given(asked: Mapping[str, Any], attribute: str) -> tuple[str, Any] | None:
    """Return the option of `asked` (no dashes) that sets `attribute` of SGLang, by any of its names, and its
    value; None where none does.
    """
    known = shipped()
    named = ((option, known.get(f"--{option}", {}).get("dest")) for option in asked)
    return next(((option, asked[option]) for option, dest in named if dest == attribute), None)


def wrong(
    asked: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], parser: str = f"SGLang {VERSION}"
) -> Iterator[str]:
    """Yield a sentence for each option of `asked` (no dashes → value) that the parser would refuse."""
    for option, value in asked.items():
        if option.startswith(_OWN):
            continue
        row = known.get(f"--{option}")
        if row is None:
            yield f"{parser} has no option --{option}{nearest(f'--{option}', known)}"
        elif row["switch"] and not isinstance(value, bool):
            yield f"--{option} of {parser} is a switch: true or false, not {value!r}"
        elif row["choices"]:
            for item in value if isinstance(value, list) else [value]:
                if str(item) not in map(str, row["choices"]):
                    allowed = ", ".join(map(str, row["choices"]))
                    yield f"--{option} of {parser} does not take {item!r}; allowed: {allowed}"
