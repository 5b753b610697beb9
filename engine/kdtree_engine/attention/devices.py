"""What the planner must know of a GPU: its capability and multiprocessors."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Device:
    """`capability` is major * 10 + minor, as in sm_90."""

    name: str
    capability: int
    multiprocessors: int


H200 = Device("H200", 90, 132)
RTX_PRO_6000 = Device("RTX PRO 6000 Blackwell", 120, 188)
B300 = Device("B300", 103, 148)


def detect() -> Device:
    """The current CUDA device. RuntimeError from torch where there is none."""
    p = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Device(p.name, p.major * 10 + p.minor, p.multi_processor_count)
