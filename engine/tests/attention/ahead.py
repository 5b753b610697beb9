"""Compile the portable kernel for a GPU that is not here, and read what it would use there."""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from kdtree_engine.attention.merge_kernel import merge_kernel
from kdtree_engine.attention.plan import Plan
from kdtree_engine.attention.shapes import CacheType
from kdtree_engine.attention.split_kernel import split_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ELEMENT = {CacheType.BF16: "*bf16", CacheType.FP8_E4M3: "*fp8e4nv", CacheType.FP32: "*fp32"}


@dataclass(frozen=True)
class Resources:
    """Per thread: `registers`, `spill_bytes` (local memory). Per block: `shared_bytes`.

    `overlaps`: the loop over the prefix copies a tile while it computes another.
    """

    registers: int
    spill_bytes: int
    shared_bytes: int
    overlaps: bool


def split_resources(plan: Plan, capability: int) -> Resources:
    """Compile the split kernel of `plan`, page size 1 with a tree mask, for sm_`capability`."""
    cached = ELEMENT[plan.shape.cache]
    compute = "*fp32" if plan.shape.cache is CacheType.FP32 else "*bf16"
    types = {
        "Q": compute, "KC": cached, "VC": cached, "KT": compute, "VT": compute, "OUT": compute,
        "TABLE": "*i32", "TABLE_START": "*i32", "PREFIX": "*i32", "ROW_START": "*i32", "MASK": "*i32",
        "LSE": "*fp32", "PART": "*fp32", "PART_LSE": "*fp32", "k_stride": "i32", "v_stride": "i32",
        "kt_stride": "i32", "vt_stride": "i32", "total_rows": "i32", "words_a_row": "i32", "splits": "i32",
        "blocks": "i32", "scale": "fp32", "kv_scale": "fp32",
    }  # fmt: skip
    shape, tiles = plan.shape, plan.tiles
    constants = {
        "HEADS": shape.query_heads, "GROUP": shape.group, "CAUSAL": False, "HAS_TREE": True, "PAGE": 1,
        "BM": tiles.rows,
        "BN": tiles.tokens, "DN": shape.main_dim, "DR": shape.rope_dim, "DV": shape.value_dim,
        "SHARED": shape.shared_kv, "STAGES": tiles.stages, "WITH_LSE": False, "OVERLAP": plan.overlap,
        "EARLY": plan.early, "PRECISION": "ieee" if compute == "*fp32" else "tf32", "WIDEN": False,
    }  # fmt: skip
    return _compile(split_kernel, types, constants, capability, tiles.warps, tiles.stages)


def hopper_resources(plan: Plan) -> Resources:
    """Compile the sm_90 kernel of `plan`, page size 1 with a tree mask."""
    from kdtree_engine.attention.hopper_kernel import hopper_kernel
    from triton.experimental.gluon._runtime import GluonASTSource

    types = {
        "Q": "*bf16", "KC": "*bf16", "KT": "*bf16", "OUT": "*bf16", "TABLE": "*i32", "TABLE_START": "*i32",
        "PREFIX": "*i32", "ROW_START": "*i32", "MASK": "*i32", "LSE": "*fp32", "PART": "*fp32",
        "PART_LSE": "*fp32", "k_stride": "i32", "kt_stride": "i32", "total_rows": "i32",
        "words_a_row": "i32", "splits": "i32", "blocks": "i32", "scale": "fp32",
    }  # fmt: skip
    shape, tiles = plan.shape, plan.tiles
    constants = {
        "HEADS": shape.query_heads, "CAUSAL": False, "HAS_TREE": True, "PAGE": 1,
        "BM": tiles.rows, "BN": tiles.tokens, "DN": shape.main_dim,
        "DR": shape.rope_dim, "BUFFERS": tiles.stages, "WITH_LSE": False, "OVERLAP": plan.overlap,
        "EARLY": plan.early,
    }  # fmt: skip
    return _compile(hopper_kernel, types, constants, 90, tiles.warps, 1, GluonASTSource)


def merge_resources(plan: Plan, capability: int) -> Resources:
    """Compile the merge kernel of `plan` for sm_`capability`."""
    types = {
        "PART": "*fp32", "PART_LSE": "*fp32", "PREFIX": "*i32", "ROW_START": "*i32", "OUT": "*bf16",
        "LSE": "*fp32", "total_rows": "i32", "words_a_row": "i32", "splits": "i32", "blocks": "i32",
    }  # fmt: skip
    constants = {
        "HEADS": plan.shape.query_heads, "HAS_TREE": True, "BN": plan.tiles.tokens,
        "DV": plan.shape.value_dim, "BD": min(64, plan.shape.value_dim), "BS": 32, "WITH_LSE": False,
        "OVERLAP": plan.overlap, "EARLY": plan.early,
    }  # fmt: skip
    return _compile(merge_kernel, types, constants, capability, 1, 1)


def _compile(
    kernel: Any,
    types: dict[str, str],
    constants: dict[str, Any],
    capability: int,
    warps: int,
    stages: int,
    source_type: type[ASTSource] = ASTSource,
) -> Resources:
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if signature[name].startswith("*") or name.endswith("_stride")
    }
    source = source_type(kernel, signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": warps, "num_stages": stages},
    )
    return _read(compiled.asm["cubin"], compiled.metadata.shared, _overlaps(compiled.asm["ptx"]))


def _overlaps(ptx: str) -> bool:
    """Whether a wait leaves copies in flight, or copies that follow a wait come before the products."""
    found = re.finditer(r"cp\.async\.(cg|wait_group\s+(\d+))|\b(?:wg)?mma\.\w*sync", ptx)
    events = "".join(m[2] or ("c" if m[1] else "p") for m in found)
    return re.search(r"[1-9]|0c+p", events) is not None


def _read(cubin: bytes, shared: int, overlaps: bool) -> Resources:
    """Registers and local memory from the binary's own resource table."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", Path(file.name)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text)}
    return Resources(found["REG"], found["STACK"] + found["LOCAL"], shared, overlaps)
