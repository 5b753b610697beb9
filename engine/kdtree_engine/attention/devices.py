"""What the planner must know of a GPU: multiprocessors, capability, shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Device:
    """`capability` is major * 10 + minor, as in sm_90; `shared_bytes` is the opt-in limit of one block."""

    name: str
    capability: int
    multiprocessors: int
    shared_bytes: int

    @property
    def is_hopper(self) -> bool:
        return self.capability == 90


H200 = Device("H200", 90, 132, 232_448)
RTX_PRO_6000 = Device("RTX PRO 6000 Blackwell", 120, 188, 101_376)
B300 = Device("B300", 103, 148, 232_448)


def detect(index: int | None = None) -> Device:
    """The given CUDA device, or the current one. RuntimeError from torch where there is none."""
    p = torch.cuda.get_device_properties(torch.cuda.current_device() if index is None else index)
    return Device(p.name, p.major * 10 + p.minor, p.multi_processor_count, p.shared_memory_per_block_optin)
