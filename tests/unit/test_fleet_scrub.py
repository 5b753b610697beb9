"""Secrets stay out of what leaves the operator's hands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.fleet.redact import secrets
from kdops.fleet.scrub import scrub

pytestmark = pytest.mark.unit
TEXT = st.text(alphabet="ab =:\"'-_\n{}*", max_size=40)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("--api-key s3cr3t --port 3", "--api-key *** --port 3"),
        (
            "ServerArgs(api_key='abcd', admin_api_key=None, tp_size=8)",
            "ServerArgs(api_key='***', admin_api_key=None, tp_size=8)",
        ),
        ("HF_TOKEN=hf_abcdefghijklmnop1234", "HF_TOKEN=***"),
        ("Authorization: Bearer abcdefgh.ij", "Authorization: Bearer ***"),
        ("git+https://user:word@host/x", "git+https://***@host/x"),
        ('"db_password": "two words", "x": 1', '"db_password": "***", "x": 1'),
        ("found sk-abcdefghijklmnopqrst in it", "found *** in it"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, left: str) -> None:
    assert scrub(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "Decode batch, #running-req: 1, #token: 13, token usage: 0.00, accept len: 2.31",
        "max_total_tokens=8192, mask_token_id=3, tokenizer_path='/opt/x', skip_tokenizer_init=False",
        "sglang:generation_tokens_total 5.0",
        "api_key_file: null",
    ],
)
def test_what_an_issue_needs_stays(text: str) -> None:
    assert scrub(text) == text


@given(TEXT, TEXT, st.text(alphabet="xyz0123456789", min_size=4, max_size=20))
def test_a_known_secret_is_never_left(before: str, after: str, secret: str) -> None:
    assert secret not in scrub(f"{before}{secret}{after}{secret}", [secret, "abc"])


@given(TEXT)
def test_scrubbing_twice_changes_nothing_more(text: str) -> None:
    assert scrub(scrub(text)) == scrub(text)


def test_the_secrets_of_an_environment_whatever_else_is_in_their_names() -> None:
    text = '# a comment\nHF_HOME=/models\nAWS_S3_KEY=abcd1\nHF_TOKEN_2="with space"\nEMPTY_TOKEN=\n'
    assert list(secrets(text)) == ["abcd1", '"with space"', "with space"]
