"""Keeps keys and passwords out of everything SGLang prints or answers about its own configuration.

By allow-list: a setting whose name sounds like a secret is shown only when it is listed here as harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

REDACTED = "<redacted>"
_SECRET_WORDS = frozenset(
    {
        "auth",
        "credential",
        "credentials",
        "key",
        "keyfile",
        "keys",
        "passwd",
        "password",
        "secret",
        "secrets",
        "token",
    }
)
# Settings of SGLang 0.5.23 that sound like secrets and are none.
HARMLESS = frozenset(
    {"bucket_inter_token_latency", "bucket_time_to_first_token", "speculative_token_map", "ssl_keyfile"}
)


def redact(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the settings without secrets. Numbers, booleans and None cannot be secrets and stay."""
    return {name: _shown(name, value) for name, value in settings.items()}


def _shown(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return redact(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if _SECRET_WORDS & set(name.lower().split("_")) and name not in HARMLESS:
        return REDACTED
    return value


class SecretFilter(logging.Filter):
    """Replaces known secrets in log records, whatever printed them."""

    def __init__(self, secrets: frozenset[str]) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if any(secret in text for secret in self._secrets):
            for secret in self._secrets:
                text = text.replace(secret, REDACTED)
            record.msg, record.args = text, None
        return True


def filter_logs(_result: None, server_args: Any, *_: Any, **__: Any) -> None:
    """After configure_logger, in every process: the handlers it made let no key through."""
    names = ("api_key", "admin_api_key", "ssl_keyfile_password")
    secrets = frozenset(filter(None, (getattr(server_args, name, None) for name in names)))
    if secrets:
        for handler in logging.getLogger().handlers:
            handler.addFilter(SecretFilter(secrets))
