"""launch.yaml: the settings as SGLang's own options (`--config`, server_args_config_parser.py)."""

from __future__ import annotations

from typing import Any

import yaml

from kdops.fleet.changes import applies
from kdops.fleet.settings import PLAIN, SETTINGS, EngineConfig, values


def options(config: EngineConfig) -> dict[str, Any]:
    """Return SGLang option (no dashes) → value, table order first, then `extra_args`.

    null settings are left to SGLang; a false switch is left out, as SGLang itself would.
    """
    settings = values(config)
    found: dict[str, Any] = {}
    for name, row in SETTINGS.items():
        value = settings[name]
        if row.flag is None or value is None or value is False or not applies(name, settings):
            continue
        if name == "algorithm" and value == PLAIN:
            continue
        found[row.flag.removeprefix("--")] = value
    return {**found, **config.extra_args}


def launch_yaml(config: EngineConfig) -> bytes:
    """Return launch.yaml. PyYAML quotes whatever needs it, so that any text arrives as it was written."""
    text: str = yaml.safe_dump(options(config), sort_keys=False, width=2**20)
    return text.encode()
