"""docs/settings.md says what the table says.

After a wanted change: KDOPS_UPDATE_GOLDEN=1 pytest tests/unit/test_fleet_document.py, then read the diff.
"""

import os
from pathlib import Path

import pytest

from kdops.fleet import SETTINGS, profiles, values
from kdops.fleet.settings import REQUIRED, TREE, Setting, default

pytestmark = pytest.mark.unit

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"
HEAD = """\
# Engine settings

Inventory variables of a host or group, in Ansible's own format and precedence; `--set KEY=VALUE` overrides
one once. `kdops config HOST` shows the effective values, where each was written, and whether the engine will
fit into memory. *Change* is what a changed value asks for: nothing (it bears on the next start or deploy
only), a restart of the engine, or a redeploy (user, environment or service name). Whatever it is, a deploy
with a changed value makes a new release, and that starts the engine anew.

Besides these: `engine_profile` (the profile used without `--profile`), `engine_profiles` (profile →
overrides), `engine_model_facts` and `engine_draft_facts` (`config`: the model's config.json, `weight_bytes`,
`source`) for models that are not on the operator's machine, and per host `gpu` (an entry of the catalogue)
and `gpu_count`.

| key | allowed | default | becomes | change | meaning |
|---|---|---|---|---|---|
"""


def shown(value: object) -> str:
    if value is REQUIRED:
        return "must be set"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`" if value else "-"


def scope(row: Setting) -> str:
    if row.algorithms == {TREE}:
        return " (DDTREE)"
    return "" if len(row.algorithms) == 3 else " (DFLASH, DDTREE)"


def document() -> str:
    lines = []
    for name, row in SETTINGS.items():
        target = row.flag or row.env
        cells = (
            f"`engine_{name}`",
            values.allowed(name),
            shown(default(name)),
            f"`{target}`" if target else "-",
            row.effect.value,
            row.doc + scope(row),
        )
        lines.append("| " + " | ".join(cells) + " |\n")
    names = ", ".join(f"`{profile}`" for profile in profiles.BUILT_IN)
    return HEAD + "".join(lines) + f"\nBuilt-in profiles: {names}.\n"


def test_document_follows_the_table() -> None:
    if os.environ.get("KDOPS_UPDATE_GOLDEN"):
        DOCUMENT.write_text(document())
    assert DOCUMENT.read_text() == document()
