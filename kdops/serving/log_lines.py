"""SGLang's and kdtree's periodic log lines as typed events.

Source of the formats: SGLang 0.5.23, managers/scheduler_components/metrics_reporter.py; old DDTREE logs
of the field.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_LINE = re.compile(r"\b(Decode|Prefill) batch(?: \[\d+\])?, (.*)", re.DOTALL)
_TREE = re.compile(r"\bDDTREE metrics: (.*)", re.DOTALL)
_PAIR = re.compile(r"(\w+)=([^\s=]+)")


@dataclass(frozen=True)
class DecodeBatch:
    """A window of decode steps (40 by default): throughput in tokens/s; accept_length is SGLang's, not AL."""

    running: int
    queued: int | None
    throughput: float | None
    tokens: int | None
    token_usage: float | None
    accept_length: float | None
    accept_rate: float | None
    graph: bool | None


@dataclass(frozen=True)
class PrefillBatch:
    """One prefill batch: token counts; throughput in prompt tokens/s."""

    new_sequences: int
    new_tokens: int | None
    cached_tokens: int | None
    running: int | None
    queued: int | None
    throughput: float | None
    graph: bool | None


@dataclass(frozen=True)
class TreeSteps:
    """Means over a window of DDTREE steps. rows: verify rows a step may use, the root included."""

    batch_size: int
    rows: int
    nodes: float | None
    accepted: float | None
    commit: float | None
    depth: float | None

    @property
    def consistent(self) -> bool:
        """True if commit = accepted drafts + 1 = accepted depth + 1, as far as the line tells them."""
        told = [value for value in (self.accepted, self.depth) if value is not None]
        return self.commit is None or all(abs(value + 1 - self.commit) < 0.015 for value in told)


Event = DecodeBatch | PrefillBatch | TreeSteps


def parse(line: str, *, budget_includes_root: bool = True) -> Event | None:
    """Return the event in `line`, or None if it holds none. Any text is allowed.

    budget_includes_root: False for logs of engines before kdtree-engine, where budget=7 meant 8 rows. A line
    with more nodes than its budget is read so in any case.
    """
    if found := _TREE.search(line):
        return _tree(dict(_PAIR.findall(found[1])), budget_includes_root)
    if not (found := _LINE.search(line)):
        return None
    pairs = (part.partition(": ") for part in found[2].split(", "))
    values = {key.strip(): value.strip() for key, mark, value in pairs if mark}
    graph = next((value == "True" for key, value in values.items() if key.endswith(" graph")), None)
    if found[1] == "Prefill":
        sequences = _whole(values.get("#new-seq"))
        return (
            None
            if sequences is None
            else PrefillBatch(
                new_sequences=sequences,
                new_tokens=_whole(values.get("#new-token")),
                cached_tokens=_whole(values.get("#cached-token")),
                running=_whole(values.get("#running-req")),
                queued=_whole(values.get("#queue-req")),
                throughput=_number(values.get("input throughput (token/s)")),
                graph=graph,
            )
        )
    running = _whole(values.get("#running-req"))
    return (
        None
        if running is None
        else DecodeBatch(
            running=running,
            queued=_whole(values.get("#queue-req")),
            throughput=_number(values.get("gen throughput (token/s)")),
            tokens=_whole(values.get("#token", values.get("#full token"))),
            token_usage=_number(values.get("token usage", values.get("full token usage"))),
            accept_length=_number(values.get("accept len")),
            accept_rate=_number(values.get("accept rate")),
            graph=graph,
        )
    )


def _tree(values: dict[str, str], includes_root: bool) -> TreeSteps | None:
    batch, budget = _whole(values.get("bs")), _whole(values.get("budget"))
    if batch is None or budget is None:
        return None
    nodes = _number(values.get("avg_actual_nodes"))
    if nodes is not None and nodes > budget + 0.005:
        includes_root = False
    return TreeSteps(
        batch_size=batch,
        rows=budget if includes_root else budget + 1,
        nodes=nodes,
        accepted=_number(values.get("avg_accepted_drafts")),
        commit=_number(values.get("avg_commit_len")),
        depth=_number(values.get("avg_accepted_depth")),
    )


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else None
