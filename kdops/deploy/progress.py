"""From task results to the lines a person follows: what happens now, how long it will take."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kdops.deploy.playbook import Event

EVERY = 10.0
_STEPS = {
    "Install the guard's units": "guard",
    "Take the lock": "lock",
    "Check that the host can take it": "preflight",
    "Upload the API key": "api key",
    "Upload the wheels": "wheels",
    "Build the Python environment from its lock": "environment",
    "Upload the files": "upload",
    "Switch to the release": "switch",
    "Start the release": "start",
    "Test it": "smoke test",
    "Commit the release": "commit",
    "Put the last committed release back": "restore",
}


@dataclass
class Progress:
    """Feed it events; it says a line when something new is known. loads: seconds of earlier starts, for the
    ETA.
    """

    say: Callable[[str], None]
    loads: tuple[float, ...] = ()
    _last: str = field(default="", init=False)
    _shown: tuple[str, str] = field(default=("", ""), init=False)
    _due: float = field(default=0.0, init=False)

    def feed(self, event: Event) -> None:
        if event.kind == "started" and event.task in _STEPS:
            self._line(f"[{_STEPS[event.task]}]")
        elif event.answer and event.kind in ("ok", "retry"):
            self._answer(event.answer)

    def _answer(self, answer: Mapping[str, Any]) -> None:
        if answer.get("loads"):
            self.loads = tuple(answer["loads"])
        if answer.get("finishing"):
            old = answer["finishing"]
            self._line(
                f"[lock] the guard finishes the interrupted deploy of {old['release']} by {old['who']}"
            )
        for path in answer.get("set_aside") or ():
            self._line(f"[switch] drift: set aside {path}")
        if smoke := answer.get("smoke"):
            words = ", ".join(f"{key} {value}" for key, value in smoke.items())
            self._line(f"[smoke test] passed: {words}")
        if "engine" in answer and not answer.get("settled"):
            self._waiting(answer["phase"], answer.get("status_text") or answer["engine"], answer["seconds"])

    def _waiting(self, phase: str, status: str, elapsed: float) -> None:
        """Say a new load phase at once, the same one again every EVERY seconds."""
        word = status.split()[0] if status else ""
        if self._shown == (phase, word) and elapsed < self._due:
            return
        self._shown, self._due = (phase, word), elapsed + EVERY
        self.say(f"[{phase}] {status}  {self._eta(elapsed)}")

    def _eta(self, elapsed: float) -> str:
        usual = statistics.median(self.loads) if self.loads else None
        if usual is None:
            return f"{elapsed:.0f} s"
        return f"{elapsed:.0f} s of about {usual:.0f} s"

    def _line(self, text: str) -> None:
        if text != self._last:
            self._last = text
            self.say(text)
