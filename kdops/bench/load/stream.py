"""One streamed request to SGLang's /generate, every arrival on one clock."""

from __future__ import annotations

import http.client
import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_KEPT = (
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "finish_reason",
    "spec_verify_ct",
    "spec_correct_drafts_histogram",
    "spec_num_correct_drafts",
    "spec_num_proposed_drafts",
    "spec_plain_steps",
)
_COUNT = b'"completion_tokens":'


@dataclass(frozen=True)
class Endpoint:
    """Where the engine listens. timeout: seconds without a byte after which it counts as hung."""

    address: str
    port: int
    key: str = ""
    timeout: float = 300.0

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection."""
        return http.client.HTTPConnection(self.address, self.port, timeout=self.timeout)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        found = {"Content-Type": "application/json"}
        return {**found, "Authorization": f"Bearer {self.key}"} if self.key else found

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Return status and content of a plain request."""
        connection = self.connect()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), self.headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def stream(endpoint: Endpoint, body: Mapping[str, Any]) -> dict[str, Any]:
    """Send one request; return its sample. Never raises for what the engine does: `error` says it.

    Seconds: ttft (to the first token), seconds (to the last), decode_seconds (first to last token; with
    first_tokens and completion_tokens the two points that cancel prefill), gaps (between arrivals).
    began: seconds since the epoch. counts: completion tokens at each arrival, null where an event did not
    say. margins, if asked for: log probability of the best token above the second, for each output token.
    """
    connection = endpoint.connect()
    payload = json.dumps({**body, "stream": True}).encode()
    started = time.perf_counter()
    arrivals: list[float] = []
    counts: list[int | None] = []
    last = b""
    try:
        connection.request("POST", "/generate", payload, endpoint.headers)
        answer = connection.getresponse()
        if answer.status != 200:
            return {"error": f"HTTP {answer.status}: {answer.read(2000).decode(errors='replace')[:300]}"}
        rest = b""
        while piece := answer.read1(1 << 16):
            now = time.perf_counter()
            *events, rest = (rest + piece).split(b"\n\n") if rest else piece.split(b"\n\n")
            for event in events:
                if event.startswith(b"data: {"):
                    last = event
                    arrivals.append(now)
                    counts.append(_tokens(event))
    except (OSError, http.client.HTTPException) as error:
        return {"error": f"{type(error).__name__}: {error}"[:300], "arrived": len(arrivals)}
    finally:
        connection.close()
    return _sample(started, arrivals, counts, last)


def _sample(started: float, arrivals: list[float], counts: list[int | None], last: bytes) -> dict[str, Any]:
    try:
        told = json.loads(last[6:])
    except ValueError:
        return {"error": "the stream ended without a readable event"}
    if not isinstance(told, dict) or "error" in told:
        said = told.get("error") if isinstance(told, dict) else told
        return {"error": f"the engine ended the stream: {said}"[:300]}
    meta = told.get("meta_info")
    ids = told.get("output_ids")
    return {
        "began": round(time.time() - (time.perf_counter() - started), 3),
        "ttft": arrivals[0] - started,
        "seconds": arrivals[-1] - started,
        "decode_seconds": arrivals[-1] - arrivals[0],
        "first_tokens": counts[0],
        "counts": counts,
        "gaps": [round(b - a, 6) for a, b in itertools.pairwise(arrivals)],
        "meta": {key: meta[key] for key in _KEPT if key in meta} if isinstance(meta, dict) else None,
        "output_ids": ids if isinstance(ids, list) else [],
        **_margins(meta),
    }


def _tokens(event: bytes) -> int | None:
    # Events are cumulative and long: one search from their end instead of a parse. A text cannot hold the
    # pattern, since JSON escapes its quotes.
    at = event.rfind(_COUNT)
    digits = event[at + len(_COUNT) :][:16].split(b",")[0].split(b"}")[0].strip() if at >= 0 else b""
    return int(digits) if digits.isdigit() else None


def _margins(meta: Any) -> dict[str, Any]:
    told = meta.get("output_top_logprobs") if isinstance(meta, dict) else None
    if not isinstance(told, list):
        return {}
    try:
        return {"margins": [round(float(top[0][0]) - float(top[1][0]), 6) for top in told]}
    except (TypeError, IndexError, KeyError, ValueError):
        return {}
