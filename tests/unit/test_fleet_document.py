"""docs/settings.md says what the table says.

After a wanted change: KDOPS_UPDATE_GOLDEN=1 pytest tests/unit/test_fleet_document.py, then read the diff.
"""

import os
import re
import shlex
from pathlib import Path

import fleet_files
import pytest

from kdops.cli.config import overrides
from kdops.fleet import SETTINGS, engine_config, profiles, values
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

`--set KEY=VALUE` may be repeated; KEY with or without `engine_`, the last one of a key wins. VALUE is the
text after the first `=`: taken as it is where the setting holds text, else read as YAML; `null` or nothing is
null. A mapping is written in YAML's braces, with a space after each colon, in quotes for the shell. It
**replaces** the inventory's mapping as a whole, as a profile's does; nothing is merged, and `{}` empties it:

```
--set engine_page_size=16
--set draft_window=null
--set 'engine_environment={OMP_NUM_THREADS: 8, NCCL_DEBUG: INFO}'
--set 'engine_extra_args={enable-cache-report: true, schedule-policy: lpm}'
--set 'engine_environment={}'
```

Besides these: `engine_profile` (the profile used without `--profile`), `engine_profiles` (profile →
overrides), `engine_model_facts` and `engine_draft_facts` (`config`: the model's config.json, `weight_bytes`,
`source`) for models that are not on the operator's machine, and per host `gpu` (an entry of the catalogue)
and `gpu_count`.

| key | allowed | default | becomes | change | meaning |
|---|---|---|---|---|---|
"""


def shown(name: str, value: object) -> str:
    if value is REQUIRED:
        return {"service": "the host's name", "algorithm": "the profile's"}.get(name, "must be set")
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
            shown(name, default(name)),
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


INVENTORY = """\
engine_environment: {NCCL_DEBUG: WARN, KEPT: no longer}
engine_extra_args: {enable-cache-report: false, watchdog-timeout: 300}
engine_draft_window: 512
"""


def test_its_examples_of_set_do_what_it_says(tmp_path: Path) -> None:
    host = fleet_files.host(tmp_path, INVENTORY)
    examples = [shlex.split(line)[1] for line in re.findall("^--set .*", HEAD, re.MULTILINE)]
    *most, empty = examples
    config = engine_config(host, overrides=overrides(most))
    assert (config.page_size, config.draft_window) == (16, None)
    assert config.environment == {"OMP_NUM_THREADS": "8", "NCCL_DEBUG": "INFO"}
    assert config.extra_args == {"enable-cache-report": True, "schedule-policy": "lpm"}
    assert engine_config(host, overrides=overrides([*most, empty])).environment == {}
    assert engine_config(host).environment["KEPT"] == "no longer"
