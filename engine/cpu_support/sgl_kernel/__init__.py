"""Stand-in for `sgl_kernel`: the operators SGLang 0.5.23 calls with SGLANG_USE_CPU_ENGINE=1 on a CPU without
AMX.

Plain torch with the contracts of the C++ ones, arguments changed in place. Any other operator is present by
name, as SGLang imports many, and raises NotImplementedError when called. For tests and demos.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from sgl_kernel.cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
]


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name} has no CPU stand-in")

    missing.__name__ = name
    return missing
