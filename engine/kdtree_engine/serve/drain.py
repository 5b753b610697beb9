"""Stopping: let no new request in, wait for the running ones, up to a deadline."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODY = json.dumps(
    {"error": {"message": "this server is draining and stops soon", "type": "draining", "code": 503}}
)
_HEALTH = ("/health", "/health_generate", "/ready", "/ping")


@dataclass
class Gate:
    """Shared between the HTTP side and the launcher: whether requests may enter, and how many are inside."""

    closed: bool = False
    inside: int = 0


class GateMiddleware:
    """ASGI middleware: counts requests that run on the engine, and answers 503 to new ones once the gate is
    closed.

    Reading metrics or settings stays possible while draining; health answers 503, so that balancers look
    elsewhere."""

    def __init__(self, app: App, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        health = scope["path"] in _HEALTH
        counts = not health and scope.get("method") != "GET"
        if self._gate.closed and (counts or health):
            return await _refuse(scope, send)
        if not counts:
            return await self._app(scope, receive, send)
        self._gate.inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._gate.inside -= 1


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1012})
        return
    headers = [(b"content-type", b"application/json"), (b"retry-after", b"30"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": _BODY.encode()})


def words(requests: int, seconds_left: float) -> str:
    """`draining 1 request, 92 s left`."""
    plural = "" if requests == 1 else "s"
    return f"draining {requests} request{plural}, {max(seconds_left, 0):.0f} s left"
