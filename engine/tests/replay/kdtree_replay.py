"""A drafter for tests: it replays recorded continuations with seeded errors, whatever the target is.

SGLang plugin. KDTREE_REPLAY names a JSON file of [prompt ids, output ids] pairs. At every position the
right token is the best candidate, or the second best behind a wrong one, or missing. Only for a scheduler
without overlap, where a request's tokens are known when it drafts.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import torch

_records: dict[tuple[int, ...], list[int]] = {}
_random = random.Random(11)
_batch: Any = None


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for prompt, output in json.loads(Path(os.environ["KDTREE_REPLAY"]).read_text()):
        _records[tuple(prompt)] = output
    HookRegistry.register("kdtree_engine.sglang.draft._forward_batch", _remember, HookType.BEFORE)
    HookRegistry.register("kdtree_engine.sglang.treeops.build", _replay, HookType.AROUND)


def _remember(_worker: Any, batch: Any, *_: Any) -> None:
    global _batch
    _batch = batch


def _replay(
    build: Any, options: Any, logp: torch.Tensor, candidates: torch.Tensor, root: torch.Tensor
) -> Any:
    logp, candidates = logp.clone(), candidates.clone()
    for row, request in enumerate(_batch.reqs):
        known = _records.get(tuple(request.origin_input_ids), [])
        for depth, right in enumerate(known[len(request.output_ids) :][: options.depths]):
            wrong = [(right + offset) % 4096 for offset in range(1, options.topk_cap + 1)]
            place = _random.choices([0, 1, options.topk_cap], [0.7, 0.2, 0.1])[0]
            ordered = [*wrong[:place], right, *wrong[place:]][: options.topk_cap]
            candidates[row, depth] = torch.tensor(ordered)
            logp[row, depth] = -0.4 - torch.arange(options.topk_cap)
    return build(options, logp, candidates, root)
