"""GPUs: count, memory and its holders, ECC, throttling, fabric, driver against CUDA."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from kdops.guard.checks import nvidia
from kdops.guard.checks.ask import Question
from kdops.guard.checks.nvidia import Gpu, Holder
from kdops.guard.checks.ports import our_units, unit_of
from kdops.guard.checks.row import Row, State
from kdops.guard.context import Context

_DRIVER = {12: 525, 13: 580}
"""CUDA major → lowest driver branch (CUDA Toolkit Release Notes, "minor version compatibility")."""

_FREE_MIB = 1024.0
"""Below this a GPU counts as free: the driver itself holds some hundred MiB."""


def rows(ctx: Context, asked: Question) -> Iterator[Row]:
    if not asked.gpus:
        yield Row("GPUs", State.OK, "none is needed: the engine runs on the CPU")
        return
    if not nvidia.present():
        remedy = "install the driver, or set gpu: cpu and engine_device: cpu"
        yield Row("GPUs", State.FAIL, "nvidia-smi is not there", remedy, "the host has no NVIDIA driver")
        return
    try:
        found = nvidia.gpus()
    except RuntimeError as error:
        remedy = "look at `dmesg` on the host"
        yield Row("GPUs", State.FAIL, str(error), remedy, "the driver does not answer")
        return
    ours = our_units(ctx, asked)
    yield from judge(asked, found, nvidia.holders(), lambda holder: unit_of(holder.pid), ours)


def judge(
    asked: Question,
    found: tuple[Gpu, ...],
    holders: tuple[Holder, ...],
    unit: Callable[[Holder], str],
    ours: set[str],
) -> Iterator[Row]:
    """Return the rows for what was found. unit: service or scope of a holder. ours: units to be replaced."""
    if len(found) < asked.gpus:
        text = f"{asked.gpus} GPUs are needed (engine_tp), {len(found)} answer"
        yield Row("GPUs", State.FAIL, text, "look at `dmesg` for Xid errors; or lower engine_tp")
    else:
        names = sorted({gpu.name for gpu in found})
        yield Row("GPUs", State.OK, f"{len(found)} × {', '.join(names)}, driver {found[0].driver}")
    yield from _driver(asked, found)
    yield from _holders(found, holders, unit, ours)
    yield from _health(found)


def _driver(asked: Question, found: tuple[Gpu, ...]) -> Iterator[Row]:
    lowest = _DRIVER.get(asked.cuda)
    branch = found[0].driver.partition(".")[0] if found else ""
    if lowest is None or not branch.isdecimal():
        return
    if int(branch) < lowest:
        text = f"CUDA {asked.cuda} of the environment needs {lowest}"
        remedy = "upgrade the NVIDIA driver and restart the host"
        yield Row("driver", State.FAIL, text, remedy, f"driver {found[0].driver} is too old")
    else:
        yield Row("driver", State.OK, f"{found[0].driver} runs CUDA {asked.cuda}")


def _holders(
    found: tuple[Gpu, ...], holders: tuple[Holder, ...], unit: Callable[[Holder], str], ours: set[str]
) -> Iterator[Row]:
    index = {gpu.uuid: gpu.index for gpu in found}
    foreign = [h for h in holders if h.uuid in index and unit(h) not in ours]
    for holder in foreign:
        size = f"{holder.memory / 1024:.1f} GiB" if holder.memory is not None else "memory"
        whose = f"{holder.name} (pid {holder.pid}, unit {unit(holder) or 'none'})"
        text = f"GPU {index[holder.uuid]}: {size} is held by {whose}"
        yield Row("GPU memory", State.FAIL, text, "stop it: an orphan of an engine that ended can be killed")
    held = {h.uuid for h in holders}
    for gpu in found:
        if gpu.memory_used > _FREE_MIB and gpu.uuid not in held:
            text = (
                f"GPU {gpu.index}: {gpu.memory_used / 1024:.1f} GiB is in use, and by no process that is told"
            )
            yield Row("GPU memory", State.WARN, text, "a process of another container, or one that is ending")
    if not foreign:
        yield Row("GPU memory", State.OK, "held by nobody else")


def _health(found: tuple[Gpu, ...]) -> Iterator[Row]:
    bad = False
    for gpu in found:
        if gpu.ecc_errors:
            bad = True
            text = f"GPU {gpu.index}: {gpu.ecc_errors} uncorrected ECC errors since the driver was loaded"
            yield Row("GPU health", State.WARN, text, "restart the host; if they come back, replace the GPU")
        if gpu.throttle:
            bad = True
            text = f"GPU {gpu.index}: clocks are held down now: {', '.join(gpu.throttle)}"
            yield Row("GPU health", State.WARN, text, "look at cooling and power supply")
        if gpu.fabric and (gpu.fabric[0].lower() != "completed" or gpu.fabric[1].lower() != "success"):
            bad = True
            text = f"GPU {gpu.index}: NVLink fabric is '{gpu.fabric[0]}' ({gpu.fabric[1]}), not 'Completed'"
            remedy = "start nvidia-fabricmanager of the driver's version: without it CUDA does not start"
            yield Row("GPU health", State.FAIL, text, remedy)
    if found and not bad:
        fabric = "fabric completed" if any(gpu.fabric for gpu in found) else "no NVLink fabric is told"
        ecc = "no uncorrected ECC error" if any(g.ecc_errors is not None for g in found) else "no ECC"
        yield Row("GPU health", State.OK, f"{ecc}, no throttling, {fabric}")


def wait_free(
    seconds: float, ask: Callable[[], tuple[Holder, ...]], sleep: Callable[[float], None] = time.sleep
) -> tuple[Holder, ...]:
    """Wait until nobody of `ask` holds GPU memory, at most `seconds`; return who still does."""
    waited = 0.0
    while (left := ask()) and waited < seconds:
        sleep(0.5)
        waited += 0.5
    return left


def leftovers(unit: str) -> tuple[Holder, ...]:
    """Return the holders that an engine of `unit` left behind: in its own group, or in that of no unit.

    Other services may hold other GPUs; they are not waited for.
    """
    return tuple(h for h in nvidia.holders() if unit_of(h.pid) in ("", unit))


def settle(unit: str, seconds: float) -> list[str]:
    """Wait until the driver has given back what the last engine held; return who holds it still, in words."""
    if not nvidia.present():
        return []
    return [
        f"GPU memory is still held by {h.name} (pid {h.pid}, unit {unit_of(h.pid) or 'none'})"
        for h in wait_free(seconds, lambda: leftovers(unit))
    ]
