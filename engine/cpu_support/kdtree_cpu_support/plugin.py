"""SGLang plugin (entry-point group sglang.srt.plugins): DFLASH-family speculative decoding on `--device cpu`.

SGLang 0.5.23 refuses DFLASH on a CPU and its torch_native attention has no target-verify pass. Each hook
below names the place it changes, so that a new SGLang release shows at once what moved.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import torch

from kdtree_cpu_support.attention import verify_attention
from kdtree_cpu_support.norm_rope import table_qk_norm_rope

log = logging.getLogger("sglang.kdtree_cpu_support")

_GATE = 'cfg.device == "npu" or cfg.device == "xpu"'
_OPEN_GATE = 'cfg.device in ("npu", "xpu", "cpu")'


def register() -> None:
    """Install every hook. Raises RuntimeError if this SGLang's device gate is not the one known here."""
    from sglang.srt.arg_groups import choices
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(
        "sglang.srt.arg_groups.speculative_hook._handle_dflash", _dflash_handler(), HookType.REPLACE
    )
    if "torch_native" not in choices.DRAFT_ATTENTION_BACKEND_CHOICES:
        choices.add_draft_attention_backend_choices(["torch_native"])
    _allow_record_stream_on_cpu()
    # models/dflash.py: the only Triton kernel on the greedy path
    HookRegistry.register(
        "sglang.kernels.ops.attention.table_qk_norm_rope.table_qk_norm_rope_",
        table_qk_norm_rope,
        HookType.REPLACE,
    )
    HookRegistry.register(
        "sglang.srt.models.dflash.DFlashDraftModel.forward", _cast_embeddings, HookType.BEFORE
    )
    HookRegistry.register(
        "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend.forward_extend",
        verify_attention,
        HookType.AROUND,
    )
    log.info("CPU support for speculative decoding is on")


def _dflash_handler() -> Callable[..., Any]:
    """Return SGLang's own `_handle_dflash` with "cpu" let through its device gate
    (arg_groups/speculative_hook.py).

    The gate is an inline condition, so the function's source is compiled again with that one condition
    changed.
    """
    import sglang.srt.arg_groups.speculative_hook as hook

    source = inspect.getsource(hook._handle_dflash)
    if _GATE not in source:
        raise RuntimeError(
            f"this SGLang's DFLASH device gate is not {_GATE!r}: kdtree-cpu-support is for 0.5.23"
        )
    code = compile(
        "from __future__ import annotations\n" + source.replace(_GATE, _OPEN_GATE), hook.__file__, "exec"
    )
    namespace: dict[str, Any] = {}
    exec(code, vars(hook), namespace)
    original = namespace["_handle_dflash"]

    def handle(cfg: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(cfg, *args, **kwargs)
        hook._disable_overlap_schedule_for_cpu(cfg)
        return result

    return handle


def _allow_record_stream_on_cpu() -> None:
    """The speculative workers call record_stream on every tensor; it only means something on a device."""
    original = torch.Tensor.record_stream

    def record_stream(self: torch.Tensor, stream: Any) -> None:
        if self.device.type != "cpu":
            original(self, stream)

    torch.Tensor.record_stream = record_stream  # type: ignore[assignment, method-assign]


def _cast_embeddings(
    self: Any, input_ids: Any, positions: Any, forward_batch: Any, input_embeds: Any = None, **kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """model_runner.py casts a drafter's input embeddings to bf16; give an fp32 drafter its own type back."""
    if input_embeds is not None:
        input_embeds = input_embeds.to(self.norm.weight.dtype)
    return (self, input_ids, positions, forward_batch, input_embeds), kwargs
