"""Which names a live process holds: the kernel lets go of a lock however its process ends."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


class Held:
    """Names that this process holds, each a locked file in `folder`, and a look at those of others."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, IO[bytes]] = {}

    def take(self, name: str) -> None:
        """Hold `name` until `drop` or the end of this process.

        Raises BlockingIOError when another process holds it, else OSError when its file cannot be made.
        """
        if name in self._files:
            return
        self._folder.mkdir(exist_ok=True)
        file = (self._folder / name).open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise
        self._files[name] = file

    def drop(self, name: str) -> None:
        """Let go of `name`, if this process holds it."""
        if file := self._files.pop(name, None):
            (self._folder / name).unlink(missing_ok=True)
            file.close()

    def close(self) -> None:
        """Let go of every name."""
        for name in list(self._files):
            self.drop(name)

    def __contains__(self, name: str) -> bool:
        """Is there a process that holds `name`?"""
        try:
            with (self._folder / name).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (OSError, ValueError):  # no such file, or a name that can be none
            return False
        return False
