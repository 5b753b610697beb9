"""SGLang plugin for equality runs: fp32 on a GPU, where 0.5.23's fused kernels take 16-bit types only.

With SGLANG_FORCE_FUSED_OP_BACKEND=torch; both arms of a comparison run with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

BLOCK_SIZES = "sglang.kernels.ops.attention.extend_attention._get_block_sizes_for_extend_attention"


def register() -> None:
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(BLOCK_SIZES, _small_blocks, HookType.AROUND)
    HookRegistry.register("sglang.srt.models.utils.can_use_fused_inplace_qknorm", _never, HookType.REPLACE)
    HookRegistry.register("sglang.srt.models.dflash.DFlashDraftModel.forward", _own_type, HookType.BEFORE)


def _small_blocks(original: Callable[..., tuple[int, ...]], *args: int, **kwargs: int) -> tuple[int, ...]:
    """Hopper's blocks of 128 x 64 spill kilobytes a thread when fp32 products are not rounded to TF32."""
    return (*original(*args, **kwargs)[:3], 32, 32, 4)


def _never(*_: Any, **__: Any) -> bool:
    return False


def _own_type(
    self: Any, input_ids: Any, positions: Any, forward_batch: Any, input_embeds: Any = None, **kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """model_runner.py casts a drafter's input embeddings to bf16."""
    if input_embeds is not None:
        input_embeds = input_embeds.to(self.norm.weight.dtype)
    return (self, input_ids, positions, forward_batch, input_embeds), kwargs
