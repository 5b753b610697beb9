"""A drafter for tests: it replays recorded continuations with seeded errors, whatever the target is.

SGLang plugin. Where KDTREE_REPLAY is set, it names a JSON file of recorded answers, lists of {"input_ids",
"output_ids"} under any names, read when the first tree is drafted. At every position the right token is the
best candidate, or the second best behind a wrong one, or missing. Only for a scheduler without overlap, where
a request's tokens are known when it drafts. With it come targets that have no trained drafter, so it lets
latent attention run on a CPU.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
from pathlib import Path
from typing import Any

import torch

LATENT_HANDLERS = (
    "sglang.srt.models.deepseek_common.attention_backend_handler.AttentionBackendRegistry.get_handler"
)
_random = random.Random(11)


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(LATENT_HANDLERS, _absorb_latents, HookType.AROUND)
    if "KDTREE_REPLAY" in os.environ:
        HookRegistry.register("kdtree_engine.sglang.worker.DDTreeWorker._trees", _replay, HookType.AROUND)


def _absorb_latents(original: Any, cls: type, backend: str) -> Any:
    """On torch_native attend over the cached latents in every pass. SGLang would prefill with whole keys that
    are not in the cache, where torch_native looks for them.
    """
    if backend != "torch_native":
        return original(cls, backend)
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import AttnForwardMethod

    return lambda _attention, _batch: AttnForwardMethod.MLA


@functools.cache
def _records() -> dict[tuple[int, ...], list[int]]:
    cells = json.loads(Path(os.environ["KDTREE_REPLAY"]).read_text()).values()
    return {tuple(one["input_ids"]): one["output_ids"] for one in itertools.chain.from_iterable(cells)}


def _replay(trees: Any, worker: Any, batch: Any, window: Any) -> Any:
    """The drafter's own tree is dropped, even one that its graph built."""
    from kdtree_engine.sglang import treeops

    drafted, in_graph = trees(worker, batch, window)
    if drafted.size == 1:
        return drafted, in_graph
    options, device = worker.options, window.ids.device
    width = options.topk_cap
    candidates = torch.arange(width).repeat(len(batch.reqs), options.depths, 1)
    for row, request in enumerate(batch.reqs):
        known = _records().get(tuple(request.origin_input_ids), [])
        for depth, right in enumerate(known[len(request.output_ids) :][: options.depths]):
            wrong = [(right + offset) % 4096 for offset in range(1, width + 1)]
            place = _random.choices([0, 1, width], [0.7, 0.2, 0.1])[0]
            candidates[row, depth] = torch.tensor([*wrong[:place], right, *wrong[place:]][:width])
    logp = (-0.4 - torch.arange(width)).expand(candidates.shape)
    tree = treeops.build(options, logp.to(device), candidates.to(device), window.ids[:, 0])
    return tree.first(drafted.size), False
