"""Files that a person named: read so that no device, pipe or size holds a command up or fills the memory."""

from __future__ import annotations

import errno
import os
import select
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

_PIECE = 1 << 16
_PATIENCE_S = 2.0
"""For whoever writes to a pipe to open it."""


def require_regular(path: Path) -> None:
    """Raise OSError unless `path` is a file that can be read again and has an end."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a device or a pipe where a file is due", str(path))


def pieces(path: Path) -> Iterator[bytes]:
    """Yield a file of any size, or what is written to a pipe, a piece at a time.

    Raises OSError, also for a device and for a pipe that nobody writes to.
    """
    pipe = stat.S_ISFIFO(path.stat().st_mode)
    if not pipe:
        require_regular(path)
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:  # noqa: PTH123
        if pipe:
            select.select([file], [], [], _PATIENCE_S)
            first = file.read(_PIECE)  # None: whoever writes has said nothing so far
            if first == b"":
                raise BrokenPipeError(errno.EPIPE, "nobody writes to this pipe", str(path))
            yield first or b""
            os.set_blocking(file.fileno(), True)
        yield from rest(file.read)


def rest(read: Callable[[int], bytes | None]) -> Iterator[bytes]:
    """Yield what is left of an open file, a piece at a time. read: its method."""
    while piece := read(_PIECE):
        yield piece
