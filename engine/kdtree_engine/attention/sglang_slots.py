"""Our attention behind the two call signatures of SGLang 0.5.23's Triton backend.

`TritonAttnBackend` asks an optional verify kernel first (`use_verify_splitkv`, `verify_splitkv_fwd`) and
runs its own when that returns False; decode goes through `decode_attention_fwd`. `install` fills both.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kdtree_engine.attention.call import tree_attention
from kdtree_engine.attention.devices import Device, detect
from kdtree_engine.attention.pack_kernel import pack_kernel
from kdtree_engine.attention.plan import Plan, make_plan
from kdtree_engine.attention.shapes import MAX_TREE_ROWS, AttentionShape
from kdtree_engine.attention.tensors import CACHE_DTYPES, PagedCache, Tree, Workspace, query_dtype

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bucket:
    """What one batch size and row count keeps between layers and forwards."""

    plan: Plan
    workspace: Workspace
    lengths: torch.Tensor  # int32 [batch]
    mask: torch.Tensor  # int32 [batch * rows, words]
    row_start: torch.Tensor  # int32 [batch + 1]


def shape_of(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> AttentionShape | None:
    """The layer's shape from SGLang's tensors, or None when no kernel of ours computes it."""
    cache = next((c for c, dtype in CACHE_DTYPES.items() if dtype == keys.dtype), None)
    if cache is None:
        return None
    shared = values.data_ptr() == keys.data_ptr()
    main, key_dim = values.shape[-1], keys.shape[-1]
    try:
        return AttentionShape(query.shape[1], keys.shape[1], main, key_dim - main, main, shared, cache)
    except ValueError:
        return None


class Slots:
    """Buckets of one backend. `max_context` is the longest context it serves."""

    def __init__(self, max_context: int, device: Device, decode: Callable[..., Any]) -> None:
        self._max_context, self._device, self._stock_decode = max_context, device, decode
        self._memory: torch.Tensor | None = None
        self._buckets: dict[tuple[AttentionShape, int, int], Bucket] = {}
        self._first: tuple[int, int] | None = None  # addresses of the first layer's keys and of the KV starts

    @property
    def workspace_bytes(self) -> int:
        """Memory that partial results take now."""
        return 0 if self._memory is None else self._memory.numel() * self._memory.element_size()

    def verify(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, k_buffer: torch.Tensor,
        v_buffer: torch.Tensor, qo_indptr: torch.Tensor, kv_indptr: torch.Tensor, kv_indices: torch.Tensor,
        custom_mask: torch.Tensor | None, is_causal: bool, mask_indptr: torch.Tensor, max_len_extend: int,
        k_scale: float, v_scale: float, sm_scale: float, *, logit_cap: float = 0.0,
        sliding_window_size: int = -1, sinks: Any = None, xai_temperature_len: int = -1, **_: Any,
    ) -> bool:  # fmt: skip
        """Write `o` and return True, or return False for a layer that only the stock kernel computes.

        Arguments as in SGLang's `extend_attention_fwd`; every request has `max_len_extend` rows.
        """
        plain = not logit_cap and sliding_window_size < 0 and sinks is None and xai_temperature_len <= 0
        rows, batch = max_len_extend, q.shape[0] // max(max_len_extend, 1)
        known = custom_mask is not None or is_causal
        if not plain or not known or k_scale != v_scale or batch * rows != q.shape[0]:
            return False
        bucket = self._bucket(q, k_buffer, v_buffer, batch, rows)
        if bucket is None or not self._same_starts(k_buffer, kv_indptr):
            return False
        if self._starts_forward(k_buffer):
            pack_kernel[(batch, rows)](
                custom_mask if custom_mask is not None else bucket.mask, mask_indptr, kv_indptr,
                bucket.lengths, bucket.mask, rows, bucket.plan.mask_words,
                HAS_MASK=custom_mask is not None, num_warps=1,
            )  # fmt: skip
        shared = bucket.plan.shape.shared_kv
        cache = PagedCache(
            k_buffer, None if shared else v_buffer, kv_indices, kv_indptr[:batch], bucket.lengths, 1, k_scale
        )
        tree = Tree(k, None if shared else v, None if custom_mask is None else bucket.mask)
        tree_attention(
            bucket.plan, bucket.workspace, q, qo_indptr[: batch + 1], cache, tree, o, softmax_scale=sm_scale
        )
        return True

    def decode(
        self, q: torch.Tensor, k_buffer: torch.Tensor, v_buffer: torch.Tensor, o: torch.Tensor,
        kv_indptr: torch.Tensor, kv_indices: torch.Tensor, *rest: Any, logit_cap: float = 0.0,
        sinks: Any = None, xai_temperature_len: int = -1, score_mod: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        """In place of SGLang's `decode_attention_fwd`: one row a request against its whole cache."""
        sm_scale, k_scale, v_scale = rest[4], rest[5], rest[6]
        plain = not logit_cap and sinks is None and xai_temperature_len <= 0 and score_mod is None
        batch = q.shape[0]
        bucket = self._bucket(q, k_buffer, v_buffer, batch, 1) if plain and k_scale == v_scale else None
        if bucket is None or not self._same_starts(k_buffer, kv_indptr):
            self._stock_decode(
                q, k_buffer, v_buffer, o, kv_indptr, kv_indices, *rest, logit_cap=logit_cap, sinks=sinks,
                xai_temperature_len=xai_temperature_len, score_mod=score_mod, **options,
            )  # fmt: skip
            return
        if self._starts_forward(k_buffer):
            torch.sub(kv_indptr[1 : batch + 1], kv_indptr[:batch], out=bucket.lengths)
        values = None if bucket.plan.shape.shared_kv else v_buffer
        cache = PagedCache(k_buffer, values, kv_indices, kv_indptr[:batch], bucket.lengths, 1, k_scale)
        tree_attention(
            bucket.plan, bucket.workspace, q, bucket.row_start, cache, None, o, softmax_scale=sm_scale
        )

    def _same_starts(self, k_buffer: torch.Tensor, kv_indptr: torch.Tensor) -> bool:
        """Whether this layer reads the same tokens as the first one; a sliding-window layer does not."""
        if self._first is None:
            self._first = k_buffer.data_ptr(), kv_indptr.data_ptr()
        return bool(self._first[1] == kv_indptr.data_ptr())

    def _starts_forward(self, k_buffer: torch.Tensor) -> bool:
        """Whether this is a forward's first layer, where lengths and mask are computed for all its layers."""
        return self._first is not None and bool(self._first[0] == k_buffer.data_ptr())

    def _bucket(
        self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: int, rows: int
    ) -> Bucket | None:
        shape = shape_of(q, keys, values)
        if (
            shape is None
            or not 1 <= rows <= MAX_TREE_ROWS
            or batch < 1
            or query_dtype(shape.cache) != q.dtype
        ):
            return None
        key = (shape, batch, rows)
        if key not in self._buckets:
            plan = make_plan(shape, self._device, batch, rows, self._max_context)
            kernel = "sm_90" if plan.hopper else "portable"
            logger.info(
                "kdtree attention: batch %d, %d rows, %d splits, %s", batch, rows, plan.splits, kernel
            )
            ints: dict[str, Any] = {"dtype": torch.int32, "device": q.device}
            self._buckets[key] = Bucket(
                plan,
                self._workspace(plan, q.device),
                torch.zeros(batch, **ints),
                torch.zeros(batch * rows, plan.mask_words, **ints),
                torch.arange(batch + 1, **ints) * rows,
            )
        return self._buckets[key]

    def _workspace(self, plan: Plan, device: torch.device) -> Workspace:
        """Buckets run one after another, so they share memory; a captured graph keeps what it has."""
        need = Workspace.elements(plan)
        if self._memory is None or self._memory.numel() < need:
            self._memory = torch.empty(need, dtype=torch.float32, device=device)
        return Workspace.within(plan, self._memory)


def install(backend: Any, max_context: int) -> Slots:
    """Make a `TritonAttnBackend` on a CUDA device use our kernels for verify and decode."""
    slots = Slots(max_context, detect(), backend.decode_attention_fwd)
    backend.use_verify_splitkv, backend.verify_splitkv_fwd = True, slots.verify
    backend.decode_attention_fwd = slots.decode
    return slots
