"""What nvidia-smi tells of the GPUs, as typed values: text in, no judgement."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from kdops import throttle

_SECONDS = 10.0
_GROUPS = (
    "index,uuid,name,driver_version,memory.used,memory.total",
    "index,ecc.errors.uncorrected.volatile.total",
    "index,clocks_event_reasons.active",
    "index,fabric.state,fabric.status",
)
"""Asked apart: a driver that does not know one name refuses the whole query."""


@dataclass(frozen=True)
class Gpu:
    """One GPU. Memory in MiB. ecc_errors: uncorrected since the driver was loaded, None without ECC.

    throttle: reasons that mean trouble. fabric: (state, status) of NVLink fabric, None where there is none.
    """

    index: int
    uuid: str
    name: str
    driver: str
    memory_used: float
    memory_total: float
    ecc_errors: int | None = None
    throttle: tuple[str, ...] = ()
    fabric: tuple[str, str] | None = None


@dataclass(frozen=True)
class Holder:
    """A process that holds GPU memory (MiB; None where the driver does not tell it, as in containers)."""

    uuid: str
    pid: int
    name: str
    memory: float | None


def present() -> bool:
    """Is there an NVIDIA driver's tool?"""
    return shutil.which("nvidia-smi") is not None


def gpus() -> tuple[Gpu, ...]:
    """Ask for all GPUs. Raises RuntimeError with the driver's words when it cannot be asked."""
    main = ask(f"--query-gpu={_GROUPS[0]}")
    if main is None:
        raise RuntimeError(_words())
    return parse(main, *(ask(f"--query-gpu={group}") or "" for group in _GROUPS[1:]))


def parse(main: str, ecc: str = "", clocks: str = "", fabric: str = "") -> tuple[Gpu, ...]:
    """Read the answers to the queries in _GROUPS (csv, no header, no units). Odd lines are left out."""
    errors = {row[0]: row[1] for row in _rows(ecc, 2)}
    masks = {row[0]: row[1] for row in _rows(clocks, 2)}
    links = {row[0]: (row[1], row[2]) for row in _rows(fabric, 3)}
    found = []
    for index, uuid, name, driver, used, total in _rows(main, 6):
        if not index.isdecimal():
            continue
        found.append(
            Gpu(
                index=int(index),
                uuid=uuid,
                name=name,
                driver=driver,
                memory_used=_number(used) or 0.0,
                memory_total=_number(total) or 0.0,
                ecc_errors=None if (count := _number(errors.get(index, ""))) is None else int(count),
                throttle=_trouble(masks.get(index, "")),
                fabric=_fabric(links.get(index)),
            )
        )
    return tuple(found)


def holders() -> tuple[Holder, ...]:
    """Return the processes that hold GPU memory."""
    return parse_holders(ask("--query-compute-apps=gpu_uuid,pid,used_memory,process_name") or "")


def parse_holders(text: str) -> tuple[Holder, ...]:
    return tuple(
        Holder(uuid, int(pid), name, _number(used))
        for uuid, pid, used, name in _rows(text, 4)
        if pid.isdecimal()
    )


def ask(query: str) -> str | None:
    """Return nvidia-smi's answer, None when it refuses or hangs."""
    argv = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            argv, check=False, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _words() -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi"], check=False, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"nvidia-smi does not answer: {type(error).__name__}"
    said = (done.stdout + done.stderr).strip().splitlines()
    return said[0][:200] if said else f"nvidia-smi ended with status {done.returncode}"


def _rows(text: str, cells: int) -> Iterable[list[str]]:
    for row in csv.reader(text.splitlines()):
        stripped = [cell.strip() for cell in row]
        if len(stripped) == cells:
            yield stripped


def _number(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,15}(\.\d{1,9})?", text, re.ASCII) else None


def _trouble(mask: str) -> tuple[str, ...]:
    return tuple(one.words for one in throttle.reasons(mask) if one.kind is throttle.Kind.TROUBLE)


def _fabric(told: tuple[str, str] | None) -> tuple[str, str] | None:
    if told is None or told[0].strip("[]").upper() in ("N/A", "NOT SUPPORTED", ""):
        return None
    return told
