"""The gate in front of the engine: counts what runs, and closes."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from kdtree_engine.serve.drain import Gate, GateMiddleware, words

pytestmark = pytest.mark.unit


async def _receive() -> MutableMapping[str, Any]:
    return {"type": "http.request"}


def ask(gate: Gate, path: str, method: str = "POST", kind: str = "http") -> tuple[int | None, int]:
    """Status sent (None: nothing but what the application sent) and requests inside while it ran."""
    sent: list[MutableMapping[str, Any]] = []
    inside = 0

    async def app(_scope: object, _receive: object, send: Any) -> None:
        nonlocal inside
        inside = gate.inside
        await send({"type": "http.response.start", "status": 200})

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": kind, "path": path, "method": method}
    asyncio.run(GateMiddleware(app, gate)(scope, _receive, send))
    return (sent[0].get("status"), inside)


def test_generations_are_counted_and_polls_are_not() -> None:
    gate = Gate()
    assert ask(gate, "/generate") == (200, 1)
    assert ask(gate, "/health", "GET") == (200, 0)
    assert ask(gate, "/metrics", "GET") == (200, 0)
    assert gate.inside == 0


def test_a_closed_gate_refuses_work_and_health_but_answers_reads() -> None:
    gate = Gate(closed=True)
    assert ask(gate, "/v1/chat/completions") == (503, 0)
    assert ask(gate, "/health", "GET") == (503, 0)
    assert ask(gate, "/server_info", "GET") == (200, 0)


def test_a_failing_request_leaves_the_gate() -> None:
    gate = Gate()

    async def fails(*_: object) -> None:
        raise RuntimeError

    async def send(_: MutableMapping[str, Any]) -> None:
        pass

    with pytest.raises(RuntimeError):
        asyncio.run(GateMiddleware(fails, gate)({"type": "http", "path": "/generate"}, _receive, send))
    assert gate.inside == 0


def test_words() -> None:
    assert words(1, 92.4) == "draining 1 request, 92 s left"
    assert words(2, -0.5) == "draining 2 requests, 0 s left"
