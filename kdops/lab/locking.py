"""Locks between kdops processes, and between a process and the children it left behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None) -> Iterator[int | None]:
    """Hold an exclusive flock on `path` (made if missing) and yield its descriptor.

    If another process holds it, call `waiting` once and wait; with `waiting` None, yield None instead of
    waiting. Children inherit the descriptor and with it the lock: if this process is killed, the next one
    waits until they are gone. A child that is to outlive this process closes it (power.sh). Source: flock(2)
    on open file descriptions.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.set_inheritable(descriptor, True)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is None:
                yield None
                return
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
