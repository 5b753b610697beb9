"""A drafter for tests: it replays recorded continuations with seeded errors, whatever the target is.

SGLang plugin. Where KDTREE_REPLAY is set, it names a JSON file of [prompt ids, output ids] pairs. At every
position the right token is the best candidate, or the second best behind a wrong one, or missing. Only for a
scheduler without overlap, where a request's tokens are known when it drafts. With it come targets that have
no trained drafter, so it lets latent attention run on a CPU.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import torch

LATENT_HANDLERS = (
    "sglang.srt.models.deepseek_common.attention_backend_handler.AttentionBackendRegistry.get_handler"
)
_records: dict[tuple[int, ...], list[int]] = {}
_random = random.Random(11)
_batch: Any = None


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(LATENT_HANDLERS, _absorb_latents, HookType.AROUND)
    if "KDTREE_REPLAY" not in os.environ:
        return
    for prompt, output in json.loads(Path(os.environ["KDTREE_REPLAY"]).read_text()):
        _records[tuple(prompt)] = output
    HookRegistry.register("kdtree_engine.sglang.draft._forward_batch", _remember, HookType.BEFORE)
    HookRegistry.register("kdtree_engine.sglang.treeops.build", _replay, HookType.AROUND)


def _absorb_latents(original: Any, cls: type, backend: str) -> Any:
    """On torch_native attend over the cached latents in every pass. SGLang would prefill with whole keys that
    are not in the cache, where torch_native looks for them.
    """
    if backend != "torch_native":
        return original(cls, backend)
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import AttnForwardMethod

    return lambda _attention, _batch: AttnForwardMethod.MLA


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
