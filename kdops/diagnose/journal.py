"""A journal of any size to evidence, in one pass and bounded memory: what its newest start says.

Takes `journalctl -o json` and plain text alike, line by line. Whatever a line holds, it does no harm: broken
UTF-8, colours, lines that were cut or run together, other programs' lines, a clock that jumps.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from kdops.diagnose.evidence import Journal, Window
from kdops.diagnose.failures import Classifier, begins
from kdops.diagnose.tree_lines import TreeSums
from kdops.host.journal import parse as parse_entry
from kdops.serving.log_lines import DecodeBatch, PrefillBatch, TreeSteps
from kdops.serving.log_lines import parse as parse_line
from kdops.text import uncoloured

_LONGEST = 1 << 16
_KEPT_GENERATIONS = 64
_KEPT_WINDOWS = 512
_KEPT_STARTS = 50

# Ranks log the same batch: rank 0 speaks for all.
_OTHER_RANK = re.compile(r" TP[1-9]\d*(?: EP\d+)?\] ")
# Engines before kdtree-engine logged every step: "accepted 1 commit 2".
_STEP = re.compile(r"\baccepted[ =:]{1,2}(\d{1,3})[ ,]{1,2}commit(?:_len|ted)?[ =:]{1,2}(\d{1,3})\b")
_POOL = re.compile(r"\bmax_total_num_tokens=(\d{1,12}),.*\bcontext_len=(\d{1,12})")
_SUPPRESSED = re.compile(r"Suppressed (\d{1,9}) messages from")
_FAMILIAR = re.compile(
    r"^-- |^\w{3} [ \d]\d \d\d:\d\d:\d\d |^\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|^(?:INFO|WARNING|ERROR|DEBUG)\b"
    r"|kdtree-|kdtree:|DDTREE|sglang|systemd\[|Traceback|\.service\b| batch|accepted[ =:]"
)
_REFUSED = re.compile(
    r"Input length \(\d+ tokens\) exceeds the maximum allowed length|is longer than the KV cache pool"
)
_READY = re.compile(r"kdtree: ready; (.*)")
_SECONDS = re.compile(r"([\d.]+) s\b")


class Reader:
    """Takes messages in the journal's order."""

    def __init__(self) -> None:
        self._classifier = Classifier()
        self._starts: deque[float] = deque(maxlen=_KEPT_STARTS)
        self._lines = 0
        self._familiar = False
        self._begin()

    def _begin(self) -> None:
        """Forget the start before: another release, or another profile."""
        self._windows = self._flat = self._eager = self._graphs = 0
        self._suppressed = self._refused = 0
        self._commits: Counter[tuple[int, int]] = Counter()
        self._trees = TreeSums()
        self._generations: deque[tuple[Window, ...]] = deque(maxlen=_KEPT_GENERATIONS)
        self._current: list[Window] = []
        self._clean = False
        self._prompt: tuple[int, int] | None = None
        self._pool: int | None = None
        self._context: int | None = None

    def feed(self, message: str) -> None:
        """Take the next message; it may have several lines."""
        for line in message.splitlines():
            self._lines += 1
            self._familiar = self._familiar or _FAMILIAR.search(line[:400]) is not None
            self._classifier.feed(line)
            if " batch" in line or "DDTREE" in line:
                self._event(line)
            elif begins(line):
                self._begin()
            elif "commit" in line or "=" in line or "kdtree: " in line or "ressed" in line or "ength" in line:
                self._other(line)

    def evidence(self) -> Journal:
        """Return what was seen so far."""
        generations = [*self._generations, *([tuple(self._current)] if self._current else [])]
        failure = self._classifier.result()
        return Journal(
            lines=self._lines,
            familiar=self._familiar or failure is not None,
            windows=self._windows,
            flat_windows=self._flat,
            eager_windows=self._eager,
            graph_windows=self._graphs,
            generations=tuple(generations),
            tree=self._trees.means(),
            commits=dict(self._commits),
            pool=self._pool,
            context=self._context,
            starts=tuple(self._starts),
            failure=failure,
            suppressed=self._suppressed,
            refused=self._refused,
        )

    def _event(self, line: str) -> None:
        if _OTHER_RANK.search(line[:200]):
            return
        event = parse_line(uncoloured(line))
        if isinstance(event, DecodeBatch):
            self._decode(event)
        elif isinstance(event, PrefillBatch):
            # The chunks of one prompt come one after the other, before its first decode line.
            new, cached = (0, 0) if self._clean or self._prompt is None else self._prompt
            self._prompt = (new + (event.new_tokens or 0), cached + (event.cached_tokens or 0))
            self._clean = False
            self._end()
        elif isinstance(event, TreeSteps):
            self._trees = self._trees.plus(event, line)

    def _decode(self, event: DecodeBatch) -> None:
        speed, running = event.throughput, event.running
        if not speed or not 0 < speed < 1e7 or not 0 < running < 1e6:
            return
        length = event.accept_length if event.accept_length and event.accept_length >= 1 else None
        self._windows += 1
        self._flat += length == 1.0
        self._eager += event.graph is False
        self._graphs += event.graph is True
        # The first window after a prefill holds the prefill, or an idle time, too.
        was_clean, self._clean = self._clean, True
        tokens = event.tokens or 0
        if running != 1 or not tokens or (self._current and tokens < self._current[-1].tokens):
            self._end()
        if running == 1 and tokens and was_clean and len(self._current) < _KEPT_WINDOWS:
            hit = None if self._prompt is None else self._prompt[1] > self._prompt[0]
            self._current.append(Window(tokens, running, (length or 1.0) / speed, length, hit))

    def _end(self) -> None:
        if self._current:
            self._generations.append(tuple(self._current))
            self._current = []

    def _other(self, line: str) -> None:
        line = line[:4000]
        if "commit" in line:
            for accepted, commit in _STEP.findall(line):
                if 1 <= int(commit) <= int(accepted) + 1:
                    self._commits[int(accepted), int(commit)] += 1
        if found := _READY.search(line):
            self._starts.append(
                sum(float(s) for s in _SECONDS.findall(found[1]) if s.count(".") < 2 and s != ".")
            )
        elif found := _POOL.search(line):
            self._pool, self._context = int(found[1]), int(found[2])
        elif found := _SUPPRESSED.search(line):
            self._suppressed += int(found[1])
        elif _REFUSED.search(line):
            self._refused += 1


def read(pieces: Iterable[bytes]) -> Journal:
    """Return the evidence in a stream cut into pieces of any size."""
    reader = Reader()
    for message in messages(pieces):
        reader.feed(message)
    return reader.evidence()


def messages(pieces: Iterable[bytes]) -> Iterator[str]:
    """Yield the message of each line; an over-long line is cut, and its rest dropped."""
    for line in _lines(pieces):
        text = line.decode(errors="replace")
        message = _message(text) if text.startswith("{") else None
        if message is not None:
            yield message
        elif text:
            yield text


def _message(text: str) -> str | None:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return None
    message = raw.get("MESSAGE") if isinstance(raw, dict) else None
    if isinstance(message, str):
        return message
    entry = parse_entry(text.encode(errors="replace"))  # bytes as an array of numbers, a repeated field
    return entry.message if entry else None


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    skip = False
    for piece in pieces:
        *lines, tail = piece.split(b"\n")
        for line in lines:
            if not skip:
                yield (rest + line)[:_LONGEST]
            rest, skip = b"", False
        rest = b"" if skip else rest + tail
        if len(rest) > _LONGEST:
            yield rest[:_LONGEST]
            rest, skip = b"", True
    if rest:
        yield rest
