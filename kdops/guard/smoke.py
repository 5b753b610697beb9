"""The smoke test, on the host, over loopback: two generations and the settings the engine runs with."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdops.errors import ExitCode, KdopsError

_PROMPT = (
    "List the steps to check that a service works after an update, one line each, and say what each of them "
    "proves. Start with the simplest step. Do not skip the step that repeats an earlier request. "
) * 4
_COUNTER = re.compile(r"^sglang:generation_tokens_total(?:\{[^}]*\})?\s+([0-9.e+]+)", re.MULTILINE)


@dataclass(frozen=True)
class Endpoint:
    """The engine's HTTP side. The API key is read when a request is made and shown nowhere."""

    url: str
    api_key_file: Path
    timeout: float

    def get(self, path: str) -> bytes:
        return self._send(urllib.request.Request(self.url + path))

    def post(self, path: str, document: Mapping[str, Any]) -> Any:
        body = json.dumps(document).encode()
        return json.loads(self._send(urllib.request.Request(self.url + path, data=body, method="POST")))

    def _send(self, request: urllib.request.Request) -> bytes:
        request.add_header("Content-Type", "application/json")
        if self.api_key_file.is_file():
            request.add_header("Authorization", "Bearer " + self.api_key_file.read_text().strip())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=self.timeout
        ) as reply:
            return bytes(reply.read())


def run(endpoint: Endpoint, tokens: int, expected: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was measured. Raises KdopsError (exit 6) when the engine answers wrongly, not at
    all, or runs with other settings than requested.

    tokens: length of each generation. The second prompt continues the first answer, so the prefix cache is
    used.
    """
    begun = time.monotonic()
    try:
        before = _counter(endpoint)
        first, first_seconds = _generate(endpoint, _PROMPT, tokens)
        second, _ = _generate(endpoint, _PROMPT + first["text"] + "\nContinue. ", tokens)
        after = _counter(endpoint)
        told = effective(endpoint)
        differences = compare(expected, told)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unhealthy("the engine did not answer a request", f"{type(error).__name__}: {error}") from error
    produced = [int(answer["meta_info"]["completion_tokens"]) for answer in (first, second)]
    if min(produced) < tokens:
        raise _unhealthy("a generation ended early", f"asked for {tokens} tokens twice, got {produced}")
    if before is not None and after is not None and after <= before:
        raise _unhealthy(
            "the engine's token counter did not move", f"generation_tokens_total stayed at {after:.0f}"
        )
    if too_small := pool_too_small(told):
        raise _unhealthy("the KV pool is smaller than the longest request", too_small)
    if differences:
        raise _unhealthy("the engine runs with other settings than requested", "; ".join(differences))
    return {
        "tokens": sum(produced),
        "tokens_per_second": round(tokens / first_seconds, 1),
        "cached_tokens": second["meta_info"].get("cached_tokens"),
        "settings_checked": len(expected),
        **({"kv_tokens": told["max_total_num_tokens"]} if "max_total_num_tokens" in told else {}),
        "seconds": round(time.monotonic() - begun, 1),
    }


def effective(endpoint: Endpoint) -> dict[str, Any]:
    """Return /server_info."""
    document = json.loads(endpoint.get("/server_info"))
    if not isinstance(document, dict):
        raise ValueError("/server_info is not an object")
    return document


def pool_too_small(told: Mapping[str, Any]) -> str:
    """Return why requests of full length would be refused hours later; "" if the pool holds one."""
    pool, context = told.get("max_total_num_tokens"), told.get("context_length")
    if not isinstance(pool, int) or not isinstance(context, int) or pool >= context:
        return ""
    more = "raise engine_memory_fraction, lower engine_context_length, or see `kdops check`"
    return f"a request may have {context} tokens, the pool holds {pool}; {more}"


def compare(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """Return one line per setting that differs (numbers are compared as numbers)."""
    return [
        f"{key}: requested {wanted!r}, effective {actual.get(key)!r}"
        for key, wanted in sorted(expected.items())
        if not _same(wanted, actual.get(key))
    ]


def _same(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, bool) or isinstance(actual, bool) or wanted is None or actual is None:
        return wanted is actual or wanted == actual
    if isinstance(wanted, int | float) and isinstance(actual, int | float):
        return abs(wanted - actual) <= 1e-9 * max(1.0, abs(wanted))
    return bool(wanted == actual)


def _generate(endpoint: Endpoint, prompt: str, tokens: int) -> tuple[dict[str, Any], float]:
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    start = time.monotonic()
    answer = endpoint.post("/generate", {"text": prompt, "sampling_params": sampling})
    return answer, time.monotonic() - start


def _counter(endpoint: Endpoint) -> float | None:
    try:
        found = _COUNTER.findall(endpoint.get("/metrics").decode(errors="replace"))
    except urllib.error.HTTPError:
        return None
    return sum(float(value) for value in found) if found else None


def _unhealthy(title: str, cause: str) -> KdopsError:
    return KdopsError(
        title, cause=cause, remedy="read the journal: `kdops logs HOST -n 50`", code=ExitCode.ROLLED_BACK
    )
