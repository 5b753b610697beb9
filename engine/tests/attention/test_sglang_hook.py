"""Pins: the slots of SGLang's Triton backend are where we fill them and call us as we expect."""

from __future__ import annotations

import inspect
import pkgutil
from types import SimpleNamespace

import pytest
from kdtree_engine.attention.sglang_slots import Slots
from kdtree_engine.options import RefusedError
from kdtree_engine.sglang import attention, compat

pytestmark = pytest.mark.unit


def names(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_backend_has_the_slots():
    source = inspect.getsource(pkgutil.resolve_name(compat.TRITON_BACKEND.rsplit(".", 1)[0]))
    for name in (
        "self.use_verify_splitkv",
        "self.verify_splitkv_fwd",
        "self.decode_attention_fwd",
        "self.max_context_len",
        "self.device",
    ):
        assert f"{name} = " in source


def test_the_slots_are_called_with_what_we_take():
    from sglang.kernels.ops.attention.decode_attention import decode_attention_fwd
    from sglang.kernels.ops.attention.verify_splitkv import verify_splitkv_fwd

    theirs = [name.removesuffix("_extend") for name in names(verify_splitkv_fwd)[:4]]
    assert theirs + names(verify_splitkv_fwd)[4:16] == names(Slots.verify)[1:17]
    assert {"logit_cap", "sliding_window_size", "sinks", "xai_temperature_len"} <= set(
        names(verify_splitkv_fwd)
    )
    assert names(decode_attention_fwd)[:6] == names(Slots.decode)[1:7]
    assert names(decode_attention_fwd)[10:13] == ["sm_scale", "k_scale", "v_scale"]


def test_the_setting_is_stock_unless_asked():
    assert not attention.wanted({}) and not attention.wanted({attention.VARIABLE: "stock"})
    assert attention.wanted({attention.VARIABLE: "kdtree"})
    with pytest.raises(RefusedError, match="stock or kdtree"):
        attention.wanted({attention.VARIABLE: "fast"})


def test_a_backend_on_the_cpu_is_left_alone():
    backend = SimpleNamespace(device="cpu", decode_attention_fwd=len)
    attention.fill_slots(None, backend)
    assert vars(backend) == {"device": "cpu", "decode_attention_fwd": len}
