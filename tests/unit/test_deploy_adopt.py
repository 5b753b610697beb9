"""A hand-written unit becomes inventory values with origins; the rest is listed, secrets are not copied."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kdops.deploy.adopt import translate
from kdops.deploy.unit_text import directives, words
from kdops.errors import UsageError

pytestmark = pytest.mark.unit

CAT = """# /etc/systemd/system/sglang.service
[Unit]
Description=Kimi

[Service]
User=llm
Environment="NCCL_P2P_DISABLE=1" HF_TOKEN=hf_sentinel
Environment=CUDA_VISIBLE_DEVICES=0,1
ExecStart=/srv/venv/bin/python -m sglang.launch_server \\
  --model-path /srv/models/kimi --tp 8 \\
  # a comment between
  --mem-fraction-static 0.87 --speculative-algorithm DFLASH \\
  --speculative-dflash-draft-window-size=2048 --api-key sk-sentinel --trust-remote-code \\
  --cuda-graph-bs 1 2 4
LimitMEMLOCK=infinity

# /etc/systemd/system/sglang.service.d/override.conf
[Service]
Environment=
Environment=NCCL_DEBUG=WARN
Nice=-5
"""


def test_values_carry_their_origin() -> None:
    found = translate("sglang.service", CAT)
    at = "/etc/systemd/system/sglang.service:8"
    assert found.values["engine_model"] == ("/srv/models/kimi", at)
    assert found.values["engine_tp"] == (8, at)
    assert found.values["engine_memory_fraction"] == (0.87, at)
    assert found.values["engine_draft_window"] == (2048, at)
    assert found.values["engine_trust_remote_code"] == (True, at)
    assert found.values["engine_profile"] == ("linear", at)
    assert found.values["engine_user"] == ("llm", "/etc/systemd/system/sglang.service:5")
    assert found.values["engine_extra_args"][0] == {"cuda-graph-bs": [1, 2, 4]}
    assert found.values["engine_adopted_unit"][0] == "sglang.service"


def test_drop_ins_override_and_reset() -> None:
    environment, origin = translate("sglang.service", CAT).values["engine_environment"]
    assert environment == {"NCCL_DEBUG": "WARN"}
    assert origin == "/etc/systemd/system/sglang.service.d/override.conf:3"


def test_what_cannot_be_expressed_is_listed_and_secrets_are_not_copied() -> None:
    text = translate("sglang.service", CAT.replace("Environment=\n", "")).text()
    assert "LimitMEMLOCK=infinity" in text
    assert "Nice=-5" in text
    assert "engine_api_key_file" in text
    assert "HF_TOKEN: may be a secret" in text
    assert "sentinel" not in text
    assert yaml.safe_load(text)["engine_tp"] == 8


@pytest.mark.parametrize(
    "text", ["", "# /x.service\n[Service]\nExecStart=\n", "\x00\xff", "[Service]\nExecStart"]
)
def test_a_unit_that_starts_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="starts nothing"):
        translate("x.service", text)


def test_unbalanced_quotes_are_reported_not_guessed() -> None:
    found = translate("x.service", "[Service]\nExecStart=/x --model-path '/a b\n")
    assert "No closing quotation" in found.unsaid[0]
    assert "engine_model" not in found.values


@given(st.text())
@example("=0")
def test_any_text_is_read_without_a_crash(text: str) -> None:
    for directive in directives(text):
        assert directive.key
        assert directive.value


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\x00"), min_size=1), min_size=1))
def test_words_come_back_from_their_quoted_form(values: list[str]) -> None:
    quoted = ["'" + v.replace("%", "%%").replace("$", "$$").replace("'", "'\"'\"'") + "'" for v in values]
    assert words(" ".join(quoted)) == values
