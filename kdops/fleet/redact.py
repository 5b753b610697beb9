"""Settings as they may be shown and stored: environment values that look secret become a fingerprint."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(r"TOKEN|KEY|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)


def redacted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` (name → value) with secret-looking entries of `environment` as "sha256:<12 hex>".

    A fingerprint still shows that a value changed.
    """
    environment = {
        name: f"sha256:{hashlib.sha256(value.encode()).hexdigest()[:12]}" if _SECRET.search(name) else value
        for name, value in settings["environment"].items()
    }
    return {**settings, "environment": environment}
