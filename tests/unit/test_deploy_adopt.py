"""A hand-written unit becomes inventory values with origins; the rest is listed, secrets are not copied."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kdops.cli.main import app
from kdops.deploy import adopt
from kdops.deploy.adopt import Adopted, translate
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


def adopted(start: str, *lines: str) -> Adopted:
    return translate("x.service", "\n".join(["# /x.service", "[Service]", *lines, f"ExecStart={start}"]))


WRAPPED = "--model-path /m --port 31000 --tp 2"


@pytest.mark.parametrize(
    ("start", "rest"),
    [
        (f"/v/bin/python -m sglang.launch_server {WRAPPED}", []),
        (f"-/opt/sglang-venv/bin/python3 -u -m sglang.launch_server {WRAPPED}", []),
        (f"/v/bin/sglang serve {WRAPPED}", []),
        (f"/usr/bin/env A=1 python3 -m sglang.launch_server {WRAPPED}", []),
        (f"/bin/bash -lc 'exec python -m sglang.launch_server {WRAPPED}'", []),
        (f"/bin/sh -c 'A=1 python -m sglang.launch_server {WRAPPED}'", []),
        (
            f"/bin/bash -l -c 'source /v/bin/activate && export A=1; exec sglang serve {WRAPPED}'",
            ["the shell also runs: source /v/bin/activate"],
        ),
        (
            f"/bin/bash -c 'python -m sglang.launch_server {WRAPPED} >>/var/log/s.log 2>&1'",
            ["the shell also runs: >> /var/log/s.log 2", "the shell also runs: >& 1"],
        ),
        (
            f"numactl --interleave=all python -m sglang.launch_server {WRAPPED}",
            ["the program: numactl --interleave=all python -m"],
        ),
        ("python -m sglang.launch_server --model-path ${MODEL} --port $PORT --tp 2", []),
        ("/bin/bash -c 'python -m sglang.launch_server --model-path $MODEL --port $${PORT} --tp 2'", []),
        ("sglang serve --model-path /m $MORE", []),
    ],
)
def test_the_command_is_found_inside_what_is_wrapped_around_it(start: str, rest: list[str]) -> None:
    found = adopted(start, "Environment=MODEL=/m PORT=31000 'MORE=--port 31000 --tp 2'")
    taken = {name: found.values[f"engine_{name}"][0] for name in ("model", "port", "tp")}
    assert taken == {"model": "/m", "port": 31000, "tp": 2}
    assert [line.split("  (")[0] for line in found.unsaid] == rest
    assert "A=1" not in start or found.values["engine_environment"][0]["A"] == "1"


def test_variables_nobody_sets_are_named_and_not_guessed() -> None:
    found = adopted("python -m sglang.launch_server --model-path ${MODEL} --port %i", "EnvironmentFile=/e")
    assert found.unsaid[0].startswith("--model-path ${MODEL}: its variable is not set")
    assert found.unsaid[1].startswith("--port %i:")
    assert "no --model-path was found" in found.unsaid[2]
    assert not {"engine_model", "engine_port"} & set(found.values)


@pytest.mark.parametrize(
    ("start", "named"),
    [
        ("python -m sglang.launch_server --model-path /m --admin-api-key sentinel", "--admin-api-key"),
        ("python -m sglang.launch_server --model-path /m --api-key=sentinel", "--api-key"),
        ("env HF_TOKEN=sentinel python -m sglang.launch_server --model-path /m", "HF_TOKEN"),
        ("/bin/sh -c 'export AWS_SECRET_ACCESS_KEY=sentinel; sglang serve --model-path /m'", "AWS_SECRET"),
        ("/bin/sh -c 'login --token sentinel; sglang serve --model-path /m'", "login --token ***"),
        ("sudo DB_PASSWORD=sentinel python -m sglang.launch_server --model-path /m", "DB_PASSWORD=***"),
        ("python -m sglang.launch_server --model-path /m --x ${MY_SECRET}", "--x ${MY_SECRET}"),
    ],
)
def test_secrets_are_named_and_never_shown(start: str, named: str) -> None:
    hidden = ["Environment=MY_SECRET=sentinel", "ExecStartPre=/bin/curl -H 'Authorization: Bearer sentinel'"]
    text = adopted(start, *hidden).text()
    assert named in text
    assert "sentinel" not in text


def test_an_algorithm_without_a_profile_is_named() -> None:
    start = "sglang serve --model-path /m --speculative-algorithm EAGLE --speculative-num-steps 3"
    found = adopted(start)
    assert found.values["engine_profile"] == ("autoregressive", "EAGLE is not expressed")
    assert [line.split("  (")[0] for line in found.unsaid] == [
        "--speculative-algorithm EAGLE: kdops has no profile for EAGLE",
        "--speculative-num-steps 3: kdops has no profile for EAGLE",
    ]


@given(st.text(st.characters(exclude_characters="\n")))
def test_any_command_line_is_read_without_a_crash(start: str) -> None:
    try:
        adopted(start).text()
    except UsageError as error:
        assert "starts nothing" in error.title or "does not start SGLang" in error.title


@pytest.mark.parametrize(
    ("start", "title"),
    [
        ("/usr/sbin/sshd -D $SSHD_OPTS", "does not start SGLang"),
        ("/bin/sh -c 'exec /srv/start.sh'", "does not start SGLang"),
        ("python -m vllm.entrypoints.openai.api_server --model /m", "does not start SGLang"),
        ("/usr/sbin/sshd '-D", "does not start SGLang"),
        ("/v/bin/python -m kdtree_engine.serve --config /r/launch.yaml", "is kdops's own"),
    ],
)
def test_a_service_that_is_no_hand_written_sglang_is_refused(start: str, title: str) -> None:
    with pytest.raises(UsageError) as caught:
        adopted(start)
    assert title in caught.value.title
    assert caught.value.cause.endswith("(/x.service:2)") and caught.value.remedy
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "text", ["", "# /x.service\n[Service]\nExecStart=\n", "\x00\xff", "[Service]\nExecStart"]
)
def test_a_unit_that_starts_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="starts nothing"):
        translate("x.service", text)


def test_the_folder_of_the_written_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adopt, "read", lambda _, unit: translate(unit, CAT))
    out = tmp_path / "inventories/host_vars/lab0.yml"
    arguments = ["adopt", "lab0", "sglang.service", "--out", str(out)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert yaml.safe_load(out.read_text())["engine_adopted_unit"] == "sglang.service"
    again = CliRunner().invoke(app, arguments)
    assert isinstance(again.exception, UsageError) and "File exists" in again.exception.cause


def test_unbalanced_quotes_are_reported_not_guessed() -> None:
    found = translate("x.service", "[Service]\nExecStart=/x --model-path '/a b\n")
    assert "No closing quotation" in found.unsaid[0]
    assert "engine_model" not in found.values


def test_control_characters_leave_the_yaml_readable() -> None:
    unit = "[Service]\nExecStart=/x -m sglang.launch_server --tp 2\nExecStop=/bin/\x1b[31m\n"
    text = translate("x.service", unit).text()
    assert "\x1b" not in text
    assert yaml.safe_load(text)["engine_tp"] == 2


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
