"""One page of shared memory through which the scheduler process tells the launcher how it is doing.

A file, because SGLang's processes are spawned, not forked; its path travels in the environment variable
below. There is one writer for the phase and counters (the leading scheduler) and one reader (the launcher);
a torn read costs one wrong status line at most.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import time
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
    """turns: scheduler progress so far. steps, accepted: verify steps and the drafts they accepted.

    entered: when each phase began, in seconds of CLOCK_MONOTONIC, which all processes share; 0 for not yet.
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
        ("entered", ctypes.c_double * len(Phase)),
    )

    def enter(self, phase: Phase) -> None:
        """Begin a phase now."""
        self.entered[phase] = time.monotonic()
        self.phase = phase

    def phase_seconds(self) -> dict[Phase, float]:
        """How long each finished phase took."""
        begun = [(phase, self.entered[phase]) for phase in Phase if self.entered[phase] > 0]
        return {phase: end - start for (phase, start), (_, end) in itertools.pairwise(begun)}


def create(path: Path) -> Page:
    """Create the page, readable by this user only, and name it in the environment of later processes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.truncate(descriptor, mmap.PAGESIZE)
    os.environ[VARIABLE] = str(path)
    page = _map(descriptor)
    page.enter(Phase.IMPORTS)
    return page


def attach() -> Page | None:
    """The launcher's page; None in a process that no launcher started.

    Raises OSError when it is named but gone.
    """
    path = os.environ.get(VARIABLE)
    return _map(os.open(path, os.O_RDWR)) if path else None


def _map(descriptor: int) -> Page:
    with os.fdopen(descriptor, "r+b") as file:
        return Page.from_buffer(mmap.mmap(file.fileno(), mmap.PAGESIZE))
