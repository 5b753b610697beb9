"""SGLang's HTTP side, as seen through a forwarded loopback port."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kdops.errors import KdopsError, UnreachableError
from kdops.loose import document, number
from kdops.serving.acceptance import Acceptance, acceptance, whole

_PATH = "/generate"


@dataclass(frozen=True)
class Generation:
    """One answer. seconds: from request to the last byte, as the client saw it (the round trip included)."""

    text: str
    output_ids: tuple[int, ...]
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    finish_reason: str
    seconds: float
    acceptance: Acceptance | None
    sglang_accept_length: float | None

    @property
    def tokens_per_second(self) -> float | None:
        """Completion tokens over the whole request's seconds, prefill included."""
        return self.completion_tokens / self.seconds if self.completion_tokens and self.seconds > 0 else None


def generate(
    port: int, prompt: str, *, max_new_tokens: int, api_key: str | None = None, timeout: float = 600.0
) -> Generation:
    """Generate up to `max_new_tokens` after `prompt`, greedily.

    port: of 127.0.0.1. Raises KdopsError when the engine refuses, UnreachableError when it does not answer.
    """
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    body = {"text": prompt, "sampling_params": {"max_new_tokens": max_new_tokens, "temperature": 0.0}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    started = time.perf_counter()
    try:
        connection.request("POST", _PATH, json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(
            f"the engine does not answer {_PATH}",
            cause=str(error) or type(error).__name__,
            remedy="look at `kdops status` and `kdops logs`: is the engine ready?",
        ) from error
    finally:
        connection.close()
    seconds = time.perf_counter() - started
    if answer.status != 200:
        raise _refused(answer.status, _said(content) or answer.reason)
    if told := document(content):
        return generation(told, seconds)
    raise KdopsError(
        f"{_PATH}: the answer is no JSON object",
        cause="something other than SGLang may listen there",
        remedy="check engine_port, and what listens on it",
        evidence=(content[:200].decode(errors="replace"),),
    )


def _refused(status: int, cause: str) -> KdopsError:
    return KdopsError(
        f"the engine refuses {_PATH}: HTTP {status}",
        cause=cause,
        remedy="an API key is missing or wrong"
        if status in (401, 403)
        else "correct the request, or look at `kdops logs`",
    )


def generation(answer: Mapping[str, Any], seconds: float) -> Generation:
    """Return the typed result of one /generate answer; fields it lacks, or that are null or NaN, are None."""
    raw = answer.get("meta_info")
    meta = raw if isinstance(raw, dict) else {}
    ids = answer.get("output_ids")
    reason = meta.get("finish_reason")
    completion = whole(meta.get("completion_tokens"))
    text = answer.get("text")
    return Generation(
        text=text if isinstance(text, str) else "",
        output_ids=tuple(i for i in ids if isinstance(i, int)) if isinstance(ids, list) else (),
        prompt_tokens=whole(meta.get("prompt_tokens")),
        completion_tokens=completion,
        cached_tokens=whole(meta.get("cached_tokens")),
        finish_reason=str(reason.get("type")) if isinstance(reason, dict) else str(reason or "unknown"),
        seconds=seconds,
        acceptance=acceptance(meta, completion),
        sglang_accept_length=number(meta.get("spec_accept_length")),
    )


def _said(content: bytes) -> str:
    text = content[:2000].decode(errors="replace")
    try:
        error = json.loads(text)
    except (ValueError, RecursionError):
        return text[:300]
    if isinstance(error, dict):
        inner = error.get("error", error.get("message", error.get("detail", "")))
        text = str(inner.get("message", inner)) if isinstance(inner, dict) else str(inner)
    return text[:300]
