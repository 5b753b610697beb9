"""The GPUs kdops knows: what memory and speed a prediction may count on."""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 1024**2


@dataclass(frozen=True)
class Gpu:
    """One GPU. memory: bytes as nvidia-smi reports them; bandwidth: bytes/s; sm: compute capability × 10;
    shared_memory: bytes one thread block may use (opt-in limit). source names where the figures are from."""

    id: str
    name: str
    memory: int
    bandwidth: float
    sm: int
    shared_memory: int
    source: str


_SHARED_MEMORY = "CUDA C++ Programming Guide, technical specifications per compute capability"

CATALOGUE: tuple[Gpu, ...] = (
    Gpu(
        "rtx-pro-6000-blackwell-server",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        97_887 * _MIB,
        1.597e12,
        120,
        99 * 1024,
        f"NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet; {_SHARED_MEMORY}",
    ),
    Gpu(
        "b300-sxm6",
        "NVIDIA B300 SXM6 AC",
        275_040 * _MIB,
        8.0e12,
        103,
        227 * 1024,
        f"NVIDIA HGX platform data sheet (B300); {_SHARED_MEMORY}",
    ),
    Gpu(
        "h200-sxm",
        "NVIDIA H200",
        143_771 * _MIB,
        4.8e12,
        90,
        227 * 1024,
        f"NVIDIA H200 Tensor Core GPU data sheet; {_SHARED_MEMORY}",
    ),
    Gpu(
        "h100-sxm",
        "NVIDIA H100 80GB HBM3",
        81_559 * _MIB,
        3.35e12,
        90,
        227 * 1024,
        f"NVIDIA H100 Tensor Core GPU data sheet; {_SHARED_MEMORY}",
    ),
    Gpu("cpu", "CPU", 0, 0.0, 0, 0, "no accelerator: host memory is not predicted"),
)

BY_ID = {gpu.id: gpu for gpu in CATALOGUE}
