"""Text that leaves the operator's hands, without secrets: for archives that go into a public issue."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
_SHORTEST = 4
_NAME = r"[\w-]*(?:api[_-]?key|(?<![a-z])token(?![a-z_])|secret|passw(?:or)?d|credential)[\w-]*"
_KEPT = r"(?!None\b|True\b|False\b|null\b|true\b|false\b|\d+(?:\.\d+)?(?![\w-]))"
_PATTERNS = (
    # HF_TOKEN=VALUE, "password": "a value"; not max_total_tokens=8192 or mask_token_id=3
    re.compile(rf"(?i)({_NAME}[\"']?\s*[=:]\s*([\"'])){_KEPT}((?:(?!\2)[^\n])+)"),
    re.compile(rf"(?i)({_NAME}\s*[=:]\s*){_KEPT}([^\s\"',;)}}\]]+)"),
    re.compile(rf"(?i)(--{_NAME}\s+[\"']?){_KEPT}([^\s\"'-][^\s\"']*)"),
    re.compile(r"(?i)\b((?:bearer|basic)\s+)([A-Za-z0-9._~+/=-]{6,})"),
    re.compile(r"(://)([^/\s:@]+:[^/\s@]+)(?=@)"),
    re.compile(r"()\b((?:hf|gh[pousr]|glpat)_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,})"),
)


def scrub(text: str, known: Iterable[str] = ()) -> str:
    """Return `text` with the values of `known` secrets, and whatever looks like one, replaced by ***."""
    for secret in sorted((s for s in known if len(s) >= _SHORTEST), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(lambda found: found[1] + HIDDEN, text)
    return text
