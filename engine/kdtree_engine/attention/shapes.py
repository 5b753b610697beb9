"""What one attention layer looks like on one GPU: heads, widths and element types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

MAX_TREE_ROWS = 256


class CacheType(Enum):
    """Element type of the KV cache; queries and tree keys are bf16 unless the cache is fp32."""

    BF16 = "bf16"
    FP8_E4M3 = "fp8_e4m3"
    FP32 = "fp32"

    @property
    def bytes(self) -> int:
        return {CacheType.BF16: 2, CacheType.FP8_E4M3: 1, CacheType.FP32: 4}[self]


@dataclass(frozen=True)
class AttentionShape:
    """One layer's attention on one GPU.

    `main_dim` + `rope_dim` is the key width. With `shared_kv` (MLA) a key's first `main_dim`
    elements are also its value and `value_dim == main_dim`; otherwise `rope_dim` is 0.
    """

    query_heads: int
    kv_heads: int
    main_dim: int
    rope_dim: int
    value_dim: int
    shared_kv: bool
    cache: CacheType = CacheType.BF16

    def __post_init__(self) -> None:
        if self.query_heads < 1 or self.kv_heads < 1 or self.query_heads % self.kv_heads:
            raise ValueError(f"{self.query_heads} query heads do not divide over {self.kv_heads} KV heads")
        for name, width in (
            ("main", self.main_dim),
            ("value", self.value_dim),
            ("rope", self.rope_dim or 16),
        ):
            if width < 16 or width & (width - 1):
                raise ValueError(f"{name} width {width} is not a power of two from 16")
        if self.shared_kv and (self.value_dim != self.main_dim or self.kv_heads != 1):
            raise ValueError("a shared latent has one KV head and its value is its main part")
        if not self.shared_kv and self.rope_dim:
            raise ValueError("separate rope elements exist only with a shared latent")
        if self.cache is CacheType.FP8_E4M3 and not self.shared_kv:
            raise ValueError("the fp8 cache is supported for a shared latent only")

    @property
    def key_dim(self) -> int:
        """Elements of one key: 576 for DeepSeek-style MLA."""
        return self.main_dim + self.rope_dim

    @property
    def group(self) -> int:
        """Query heads that share one KV head; their rows are folded into one matrix."""
        return self.query_heads // self.kv_heads

    @property
    def token_bytes(self) -> int:
        """Bytes of one cached token in this layer."""
        width = self.key_dim if self.shared_kv else self.key_dim + self.value_dim
        return self.kv_heads * width * self.cache.bytes

    def operations(self, rows: int, tokens: int) -> int:
        """Floating-point operations of `rows` tree nodes against `tokens` keys each."""
        return 2 * rows * self.query_heads * tokens * (self.key_dim + self.value_dim)


def mla(heads: int, cache: CacheType = CacheType.BF16, latent: int = 512, rope: int = 64) -> AttentionShape:
    """Absorbed multi-head latent attention (DeepSeek-V2, section 2.1), `heads` query heads on this GPU."""
    return AttentionShape(heads, 1, latent, rope, latent, True, cache)


def gqa(query_heads: int, kv_heads: int, head_dim: int, cache: CacheType = CacheType.BF16) -> AttentionShape:
    """Grouped-query attention with equal key and value width."""
    return AttentionShape(query_heads, kv_heads, head_dim, 0, head_dim, False, cache)
