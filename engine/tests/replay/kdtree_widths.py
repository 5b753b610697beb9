"""Verify widths for tests: a seeded sequence takes the place of the policy's choices.

SGLang plugin for `--ddtree-budget auto`, on where KDTREE_WIDTHS is set. What a policy goes by is a machine's
speed; this makes every width follow every other one, plain decoding included, whatever the machine.
"""

from __future__ import annotations

import os
import random
from typing import Any

_random = random.Random(5)


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if "KDTREE_WIDTHS" in os.environ:
        HookRegistry.register("kdtree_engine.policy.Policy.choose", _choose, HookType.AROUND)


def _choose(choose: Any, policy: Any, context: int, batch: int) -> Any:
    from dataclasses import replace

    return replace(choose(policy, context, batch), rows=_random.choice(policy.widths))
