"""SGLang's and kdtree's periodic log lines as typed events.

Source of the formats: SGLang 0.5.23, managers/scheduler_components/metrics_reporter.py; old DDTREE logs
of the field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kdops.loose import digits, number

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
        sequences = digits(values.get("#new-seq"))
        return (
            None
            if sequences is None
            else PrefillBatch(
                new_sequences=sequences,
                new_tokens=digits(values.get("#new-token")),
                cached_tokens=digits(values.get("#cached-token")),
                running=digits(values.get("#running-req")),
                queued=digits(values.get("#queue-req")),
                throughput=number(values.get("input throughput (token/s)")),
                graph=graph,
            )
        )
    running = digits(values.get("#running-req"))
    return (
        None
        if running is None
        else DecodeBatch(
            running=running,
            queued=digits(values.get("#queue-req")),
            throughput=number(values.get("gen throughput (token/s)")),
            tokens=digits(values.get("#token", values.get("#full token"))),
            token_usage=number(values.get("token usage", values.get("full token usage"))),
            accept_length=number(values.get("accept len")),
            accept_rate=number(values.get("accept rate")),
            graph=graph,
        )
    )


def _tree(values: dict[str, str], includes_root: bool) -> TreeSteps | None:
    batch, budget = digits(values.get("bs")), digits(values.get("budget"))
    if batch is None or budget is None:
        return None
    nodes = number(values.get("avg_actual_nodes"))
    if nodes is not None and nodes > budget + 0.005:
        includes_root = False
    return TreeSteps(
        batch_size=batch,
        rows=budget if includes_root else budget + 1,
        nodes=nodes,
        accepted=number(values.get("avg_accepted_drafts")),
        commit=number(values.get("avg_commit_len")),
        depth=number(values.get("avg_accepted_depth")),
    )
