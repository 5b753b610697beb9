"""A real headless Chromium, spoken to over its DevTools pipe."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")


class Browser:
    """One page. errors: what its console said, and every exception in it."""

    def __init__(self, writes: int, reads: int) -> None:
        self._writes, self._reads, self._rest, self._last = writes, reads, b"", 0
        self._session: str | None = None
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a DevTools method; events that come meanwhile are looked through."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._last:
                assert "error" not in told, told
                result: dict[str, Any] = told["result"]
                return result

    def open(self, path: Path, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """Show a file in a window `width` pixels wide."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def ask(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._reads, 1 << 20)
            assert piece, "the browser is gone"
            self._rest += piece
        raw, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(raw)
        if told.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
            self.errors.append(json.dumps(told["params"])[:400])
        if told.get("method") == "Network.requestWillBeSent":
            url = told["params"]["request"]["url"]
            if not url.startswith(("file:", "about:")):
                self.errors.append(f"the page asks for {url}")
        return told


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium with a profile of its own; it is gone afterwards."""
    to_browser, writes = os.pipe()
    reads, from_browser = os.pipe()

    def pipes() -> None:  # DevTools reads from descriptor 3 and writes to 4
        kept = os.dup(to_browser), os.dup(from_browser)
        os.dup2(kept[0], 3)
        os.dup2(kept[1], 4)

    command = ["chromium", *_FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        command,
        preexec_fn=pipes,
        close_fds=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Browser(writes, reads)
    finally:
        os.close(writes)
        os.close(reads)
        process.terminate()
        process.wait(20)
