"""Which single change makes a request of full length fit: each is proven by the same prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import islice

from kdops.fleet.facts import ModelFacts
from kdops.fleet.gpus import Gpu
from kdops.fleet.memory import MIN_RESERVE, predict
from kdops.fleet.settings import EngineConfig

_MOST = 3
_HIGHEST_FRACTION = 0.95


def changes(
    config: EngineConfig, gpu: Gpu, gpu_count: int, target: ModelFacts, draft: ModelFacts | None, context: int
) -> tuple[str, ...]:
    """Return up to three settings, as `--set` takes them, each alone enough for `context` tokens."""

    def fits(**changed: object) -> bool:
        seen = predict(dataclasses.replace(config, **changed), gpu, target, draft)  # type: ignore[arg-type]
        wanted = changed.get("context_length", context)
        roomy = seen.reserve_bytes is None or seen.reserve_bytes >= MIN_RESERVE
        return roomy and seen.tokens is not None and seen.tokens >= int(str(wanted))

    def found() -> Iterator[str]:
        if config.max_total_tokens is not None and (
            config.device == "cpu" or fits(max_total_tokens=None) or fits(max_total_tokens=context)
        ):
            yield f"engine_max_total_tokens={context}"
        steps = range(int(config.memory_fraction * 100) + 1, int(_HIGHEST_FRACTION * 100) + 1)
        if (step := next((n for n in steps if fits(memory_fraction=n / 100)), None)) is not None:
            yield f"engine_memory_fraction={step / 100:g}"
        held = predict(config, gpu, target, draft).tokens or 0
        if held > 0 and fits(context_length=held):
            yield f"engine_context_length={held}"
        if (
            config.device == "cuda"
            and not config.kv_cache_dtype.startswith("fp8")
            and fits(kv_cache_dtype="fp8_e4m3")
        ):
            yield "engine_kv_cache_dtype=fp8_e4m3"
        tp = config.tp * 2
        if tp <= gpu_count and fits(tp=tp):
            yield f"engine_tp={tp}"

    return tuple(islice(found(), _MOST))
