"""Settings as they may be shown and stored: environment values that look secret become a fingerprint."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)


def secrets(environment: str) -> Iterator[str]:
    """Yield the secret-looking values in the text of an engine.env, as written and without quotes."""
    for line in environment.splitlines():
        name, _, value = line.partition("=")
        if _SECRET.search(name) and (value := value.strip()):
            yield from dict.fromkeys((value, value.strip("\"'")))


def redacted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` (name → value) with secret-looking entries of `environment` as "sha256:<12 hex>".

    A fingerprint still shows that a value changed.
    """
    environment = {
        name: f"sha256:{hashlib.sha256(value.encode()).hexdigest()[:12]}" if _SECRET.search(name) else value
        for name, value in settings["environment"].items()
    }
    return {**settings, "environment": environment}
