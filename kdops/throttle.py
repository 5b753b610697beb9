"""Why a GPU's clocks are held down: the one table of the driver's reasons and of what each of them means.

Source: NVML, nvmlClocksEventReasons (nvidia-smi's clocks_event_reasons.active, before driver 535
clocks_throttle_reasons.active). Standard library alone: the guard takes it to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """CHOSEN: somebody set the clocks so. CAP: the power limit, part of what a load does on its GPU. TROUBLE:
    heat, a hardware slowdown or a power brake; what is measured meanwhile is void."""

    CHOSEN = "chosen"
    CAP = "cap"
    TROUBLE = "trouble"


@dataclass(frozen=True)
class Reason:
    """bit: in the driver's mask. words: kdops's name for it. label: that of `nvidia-smi -q`."""

    bit: int
    words: str
    label: str
    kind: Kind


POWER_CAP = Reason(0x04, "power cap", "SW Power Cap", Kind.CAP)
REASONS = (  # 0x01, a GPU without work, is none
    Reason(0x02, "application clocks", "Applications Clocks Setting", Kind.CHOSEN),
    POWER_CAP,
    Reason(0x08, "hardware slowdown", "HW Slowdown", Kind.TROUBLE),
    Reason(0x10, "sync boost", "Sync Boost", Kind.CHOSEN),
    Reason(0x20, "software thermal slowdown", "SW Thermal Slowdown", Kind.TROUBLE),
    Reason(0x40, "hardware thermal slowdown", "HW Thermal Slowdown", Kind.TROUBLE),
    Reason(0x80, "power brake", "HW Power Brake Slowdown", Kind.TROUBLE),
    Reason(0x100, "display clocks", "Display Clock Setting", Kind.CHOSEN),
)


def reasons(mask: str) -> tuple[Reason, ...]:
    """Return the reasons in a mask as nvidia-smi writes it (hexadecimal), none for what is no mask."""
    try:
        bits = int(mask, 16)
    except ValueError:
        return ()
    return tuple(reason for reason in REASONS if bits & reason.bit)
