"""One page of shared memory through which the scheduler process tells the launcher how it is doing.

A file, because SGLang's processes are spawned, not forked; its path travels in the environment variable
below. There is one writer for the phase and counters (the leading scheduler) and one reader (the launcher);
a torn read costs one wrong status line at most.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from enum import IntEnum
from pathlib import Path

VARIABLE = "KDTREE_STATUS_PAGE"


class Phase(IntEnum):
    """What a starting engine does, in order; the names are those of `STATUS=phase=...`."""

    IMPORTS = 0
    WEIGHTS = 1
    KV_CACHE = 2
    GRAPHS = 3
    WARM_UP = 4
    SERVING = 5

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


class Page(ctypes.Structure):
    """turns: scheduler loop turns and batches so far; steps, accepted: verify steps and the drafts they
    accepted.
    """

    phase: int
    running: int
    queued: int
    turns: int
    steps: int
    accepted: int
    _fields_ = (
        ("phase", ctypes.c_uint32),
        ("running", ctypes.c_uint32),
        ("queued", ctypes.c_uint32),
        ("turns", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("accepted", ctypes.c_uint64),
    )


def create(path: Path) -> Page:
    """Create the page, readable by this user only, and name it in the environment of later processes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.truncate(descriptor, mmap.PAGESIZE)
    os.environ[VARIABLE] = str(path)
    return _map(descriptor)


def attach() -> Page | None:
    """The launcher's page; None in a process that no launcher started.

    Raises OSError when it is named but gone.
    """
    path = os.environ.get(VARIABLE)
    return _map(os.open(path, os.O_RDWR)) if path else None


def _map(descriptor: int) -> Page:
    with os.fdopen(descriptor, "r+b") as file:
        return Page.from_buffer(mmap.mmap(file.fileno(), mmap.PAGESIZE))
