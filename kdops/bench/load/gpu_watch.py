"""The GPUs of this machine while the load runs: one line of nvidia-smi for each GPU and second, as it is."""

from __future__ import annotations

import subprocess
import threading

FIELDS = (
    "index,clocks.sm,clocks.max.sm,power.draw,enforced.power.limit,temperature.gpu,utilization.gpu,"
    "memory.used,clocks_throttle_reasons.active"
)


class GpuWatch:
    """Runs `nvidia-smi -l 1` until `end`. seen: a line has come. A machine without it has no lines."""

    def __init__(self) -> None:
        self.seen = threading.Event()
        self._lines: list[str] = []
        command = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", "-l", "1"]
        try:
            self._process: subprocess.Popen[str] | None = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            self._process = None
            return
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self._process and self._process.stdout:
            for line in self._process.stdout:
                self._lines.append(line.strip())
                self.seen.set()

    def end(self) -> list[str] | None:
        """Stop; return the lines, None where there is no nvidia-smi."""
        if self._process is None:
            return None
        self._process.terminate()
        self._process.wait()
        self._reader.join(1)
        return self._lines
