"""Puts our attention into SGLang's Triton backend when KDTREE_VERIFY_ATTENTION asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdtree_engine.options import RefusedError

VARIABLE = "KDTREE_VERIFY_ATTENTION"


def wanted(environment: Mapping[str, str]) -> bool:
    """Whether verify and decode attention are ours. Raises RefusedError for an unknown value."""
    value = environment.get(VARIABLE, "stock")
    if value not in ("stock", "kdtree"):
        raise RefusedError(f"{VARIABLE} is {value!r}; it can be stock or kdtree")
    return value == "kdtree"


def fill_slots(_: None, backend: Any, *args: Any, **kwargs: Any) -> None:
    """After TritonAttnBackend.__init__: on CUDA, verify and decode go to our kernels first."""
    import torch

    if torch.device(backend.device).type == "cuda":
        from kdtree_engine.attention.sglang_slots import install

        install(backend, backend.max_context_len)
