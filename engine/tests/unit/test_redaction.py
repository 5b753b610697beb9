"""No setting that sounds like a secret is shown, whatever it is called."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdtree_engine.sglang.redaction import HARMLESS, REDACTED, SecretFilter, redact

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "name", ["api_key", "admin_api_key", "ssl_keyfile_password", "hf_token", "watermark_key"]
)
def test_secrets_go(name: str) -> None:
    assert redact({name: "sentinel"}) == {name: REDACTED}
    assert redact({"outer": {name: "sentinel"}}) == {"outer": {name: REDACTED}}
    assert redact({name: None}) == {name: None}


def test_ordinary_settings_stay() -> None:
    shown = {"tokenizer_path": "/m", "max_total_tokens": 8192, "speculative_token_map": "/t", "port": 1}
    assert redact(shown) == shown


@given(st.text(), st.text(min_size=1))
def test_a_new_secret_setting_is_hidden_unless_listed(prefix: str, value: str) -> None:
    name = f"{prefix}_api_key"
    assert redact({name: value})[name] == REDACTED or name in HARMLESS


def test_the_log_filter_replaces_the_key() -> None:
    record = logging.LogRecord("n", logging.INFO, "f", 1, "key=%s", ("sentinel",), None)
    assert SecretFilter(frozenset({"sentinel"})).filter(record)
    assert record.getMessage() == f"key={REDACTED}"
