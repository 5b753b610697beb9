"""From task results to what a person follows: what happens now, how long it will take."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kdops.deploy.playbook import Event
from kdops.text import printable

EVERY = 10.0
PHASES = ("lock", "preflight", "upload", "switch", "start", "smoke test", "commit")
"""What a deploy goes through, in order."""

RESTORE = "restore"
_TASKS = {  # task → (its word, the phase it belongs to)
    "Install the guard's units": ("guard", "lock"),
    "Take the lock": ("lock", "lock"),
    "Check that the host can take it": ("preflight", "preflight"),
    "Upload the API key": ("api key", "upload"),
    "Upload the wheels": ("wheels", "upload"),
    "Build the Python environment from its lock": ("environment", "upload"),
    "Upload the files": ("upload", "upload"),
    "Switch to the release": ("switch", "switch"),
    "Start the release": ("start", "start"),
    "Test it": ("smoke test", "smoke test"),
    "Commit the release": ("commit", "commit"),
    "Put the last committed release back": (RESTORE, RESTORE),
}
_SMOKE = {
    "tokens": "{} tokens generated",
    "tokens_per_second": "{} tokens/s",
    "cached_tokens": "{} prompt tokens from the cache",
    "settings_checked": "{} settings as requested",
    "kv_tokens": "KV pool of {} tokens",
    "seconds": "in {} s",
}
"""What a passed smoke test tells, in words."""


@dataclass(frozen=True)
class Now:
    """What happens. phase: one of PHASES, or RESTORE. word: the step in it, or the guard's own phase.

    engine: the engine's status text while it loads, for `seconds` now; usual: the seconds that a start takes
    on this host, None when nothing was started there yet.
    """

    phase: str
    word: str
    engine: str = ""
    seconds: float = 0.0
    usual: float | None = None


def line(now: Now, elapsed: float, since: float) -> list[tuple[str, str]]:
    """Return the line that is drawn again and again, in parts: text, style ("" for none).

    elapsed: seconds since the deploy began; since: seconds since `now` was said.
    """
    detail = printable(now.engine.removeprefix("phase=")) or (now.word if now.word != now.phase else "")
    phases = PHASES if now.phase in PHASES else (now.phase,)
    passed = phases.index(now.phase)
    parts = [(f"{elapsed:4.0f} s{_left(now, since)}  ", "")]
    for number, phase in enumerate(phases):
        style = "green" if number < passed else "dim" if number > passed else "bold reverse"
        parts += [(" · " if number else "", "dim"), (phase, style)]
        if number == passed and detail:
            parts.append((f" {detail}", ""))
    return parts


def _left(now: Now, since: float) -> str:
    if now.usual is None or now.phase in ("smoke test", "commit"):
        return ""
    loaded = now.seconds + since if now.engine else 0.0
    left = now.usual - loaded
    return f", about {left:.0f} s left" if left >= 1 else ", longer than usual"


class Display(Protocol):
    """Where progress goes."""

    def note(self, text: str) -> None:
        """Show a line that stays."""

    def show(self, now: Now) -> None:
        """Show what happens now."""


@dataclass
class Lines:
    """Plain lines: one for each step, one when the engine's phase changes, else one every EVERY seconds."""

    say: Callable[[str], None]
    _last: str = field(default="", init=False)
    _shown: tuple[str, str] = field(default=("", ""), init=False)
    _due: float = field(default=0.0, init=False)

    def note(self, text: str) -> None:
        if text != self._last:
            self._last = text
            self.say(text)

    def show(self, now: Now) -> None:
        if not now.engine:
            self.note(f"[{now.word}]")
            return
        shown = (now.word, now.engine.split()[0])
        if self._shown != shown or now.seconds >= self._due:
            self._shown, self._due = shown, now.seconds + EVERY
            usual = f" of about {now.usual:.0f} s" if now.usual is not None else ""
            self.say(f"[{now.word}] {now.engine}  {now.seconds:.0f} s{usual}")


@dataclass
class Progress:
    """Feed it events. loads: seconds of earlier starts on this host."""

    display: Display
    loads: tuple[float, ...] = ()
    _switched: bool = field(default=False, init=False)

    def feed(self, event: Event) -> None:
        if event.kind == "started" and event.task in _TASKS:
            word, phase = _TASKS[event.task]
            self._switched = self._switched or phase == "switch"
            if phase != RESTORE or self._switched:  # before the switch there is nothing to put back
                self.display.show(Now(phase, word, usual=self._usual))
        elif event.answer and event.kind in ("ok", "retry"):
            self._answer(event.answer)

    @property
    def _usual(self) -> float | None:
        return statistics.median(self.loads) if self.loads else None

    def _answer(self, answer: Mapping[str, Any]) -> None:
        if answer.get("loads"):
            self.loads = tuple(answer["loads"])
        if old := answer.get("finishing"):
            words = f"the guard finishes the interrupted deploy of {old['release']} by {old['who']}"
            self.display.note(f"[lock] {words}")
        for path in answer.get("set_aside") or ():
            self.display.note(f"[switch] drift: set aside {path}; after the commit in {answer['kept_in']}")
        if smoke := answer.get("smoke"):
            told = (words.format(smoke[key]) for key, words in _SMOKE.items() if smoke.get(key) is not None)
            self.display.note(f"[smoke test] passed: {', '.join(told)}")
        if "engine" in answer and not answer.get("settled"):
            phase = RESTORE if answer["phase"] == "restoring" else "start"
            text = answer.get("status_text") or answer["engine"]
            self.display.show(Now(phase, answer["phase"], text, answer["seconds"], self._usual))
