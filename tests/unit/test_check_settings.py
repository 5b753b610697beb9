"""The offline rows of a check, and the drafter against the target."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from fleet_files import host
from hypothesis import given
from hypothesis import strategies as st

from kdops import fleet
from kdops.check import offline, run, settings
from kdops.check.report import refusal, report
from kdops.check.run import question, with_configs
from kdops.cli.config import repeated
from kdops.deploy import bundle
from kdops.deploy.progress import Lines
from kdops.errors import KdopsError, UsageError
from kdops.fleet import engine_config, pair, sglang_options
from kdops.fleet.resolve import typed_config
from kdops.guard.checks.ask import parse
from kdops.guard.checks.row import Row, State

pytestmark = pytest.mark.unit

TARGET = {"num_hidden_layers": 61, "vocab_size": 163840, "hidden_size": 7168}
DRAFT = {
    "num_hidden_layers": 5,
    "vocab_size": 163840,
    "hidden_size": 7168,
    "num_target_layers": 61,
    "layer_types": ["full_attention"] * 5,
    "dflash_config": {"target_layer_ids": [1, 15, 30, 58], "mask_token_id": 163838},
}


def rows(name: str, profile: str | None = None, **changes: Any) -> list[Row]:
    found = fleet.load().one(name)
    return list(offline(typed_config(found, profile, changes), found).rows)


@pytest.mark.parametrize("name", ["ct200", "b300", "lab0"])
@pytest.mark.parametrize("profile", ["autoregressive", "linear", "ddtree", "ddtree-chain"])
def test_shipped_hosts_have_no_failing_row(name: str, profile: str) -> None:
    assert not [row for row in rows(name, profile) if row.state in (State.FAIL, State.WARN)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"extra_args": {"enable-cach-report": True}}, "did you mean '--enable-cache-report'?"),
        ({"extra_args": {"enable-cache-report": 3}}, "--enable-cache-report of SGLang 0.5.23 is a switch"),
        ({"extra_args": {"schedule-policy": "fastest"}}, "does not take 'fastest'; allowed: "),
        ({"context_length": 300_000}, "knows 262144 positions"),
        ({"memory_fraction": 0.995}, "0.0 GB of each GPU for activations and CUDA graphs"),
        ({"draft_window": 4}, "below engine_block_size"),
    ],
)
def test_each_wrong_setting_is_the_first_row(changes: dict[str, Any], said: str) -> None:
    first = rows("ct200", "linear", **changes)[0]
    assert first.state is State.FAIL
    assert said in first.found
    assert "(--set)" in first.found
    assert first.remedy


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.0.0.5", "box.example.net"])
def test_an_engine_open_to_others_without_a_key_is_a_warning(bind: str, tmp_path: Path) -> None:
    (row,) = [row for row in rows("lab0", bind=bind) if row.state is State.WARN]
    assert bind in row.found and "engine_api_key_file" in row.remedy
    key = tmp_path / "key"
    key.write_text("k")
    assert {row.state for row in rows("lab0", bind=bind, api_key_file=str(key))} <= {State.OK, State.NOT_RUN}


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_an_engine_on_loopback_needs_no_key(bind: str) -> None:
    assert not [row for row in rows("lab0", bind=bind) if row.state is State.WARN]


def test_a_key_file_that_is_not_here_is_a_failing_row(tmp_path: Path) -> None:
    (row,) = [r for r in rows("lab0", api_key_file=str(tmp_path / "key")) if r.state is State.FAIL]
    assert row.found == f"the API key file cannot be read: {tmp_path}/key: No such file or directory"
    assert row.remedy


def test_a_pool_that_is_too_small_names_three_settings_that_are_each_enough() -> None:
    found = fleet.load().one("ct200")
    (row,) = [row for row in rows("ct200", "linear", memory_fraction=0.81) if row.state is State.FAIL]
    assert row.check == "memory model"
    assert "200000 tokens a request, but the KV pool is predicted to hold 113348" in row.found
    changes = [part.removeprefix("--set ") for part in row.remedy.split(", or ")]
    assert len(changes) == 3
    for change in changes:
        key, _, value = change.partition("=")
        assert engine_config(found, "linear", {"memory_fraction": 0.81, key: value}), change


def test_what_cannot_fit_at_all_says_so() -> None:
    (first, *_) = rows("ct200", "linear", memory_fraction=0.5)
    assert "leaves no KV pool" in first.found


def test_a_misspelt_option_stops_every_command_before_the_host_is_asked(tmp_path: Path) -> None:
    found = host(tmp_path, "engine_extra_args: {enable-cach-report: true}")
    with pytest.raises(UsageError) as caught:
        engine_config(found, "linear")
    assert "SGLang 0.5.23 has no option --enable-cach-report" in caught.value.cause
    assert "fleet.yml:10" in caught.value.cause


def test_options_of_the_host_s_own_parser_count() -> None:
    config = typed_config(fleet.load().one("lab0"), "linear", {"extra_args": {"enable-cache-report": True}})
    older = {"version": "0.5.19", "options": {}}
    (row,) = settings.options(config, older)
    assert row.state is State.FAIL
    assert "the host's SGLang 0.5.19 has no option --enable-cache-report" in row.found
    newer = {"version": "0.5.23", "options": sglang_options.shipped()}
    assert [row.state for row in settings.options(config, newer)] == [State.OK]
    assert [row.state for row in settings.options(config, None)] == [State.OK]


def test_a_drafter_that_fits_is_not_blamed() -> None:
    assert not list(pair.mismatches(TARGET, DRAFT))
    assert not list(pair.mismatches({"text_config": TARGET}, DRAFT))
    assert not list(pair.mismatches({}, {}))
    assert not list(pair.remarks(DRAFT))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"vocab_size": 32000}, "its vocabulary is 32000, the target's is 163840"),
        ({"hidden_size": 4096}, "its hidden size is 4096"),
        ({"num_target_layers": 36}, "trained for a target of 36 layers, this one has 61"),
        ({"dflash_config": {"target_layer_ids": [1, 61]}}, "names 61; the target has layers 0 to 60"),
        ({"dflash_config": {"target_layer_ids": []}}, "no list of layers"),
        ({"dflash_config": {"mask_token_id": 163840}}, "mask_token_id 163840 is outside"),
        ({"layer_types": ["full_attention"]}, "1 entries for 5 layers"),
        ({"layer_types": ["linear_attention"] * 5}, "layer_types holds linear_attention"),
        ({"layer_types": ["sliding_attention"] * 5}, "sliding_window is not set"),
        ({"layer_types": 3}, "no list"),
    ],
)
def test_a_drafter_of_another_target_is_refused(change: dict[str, Any], said: str) -> None:
    assert said in next(pair.mismatches(TARGET, {**DRAFT, **change}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sliding_window": 2048, "layer_types": None}, "runs every layer with full attention"),
        (
            {
                "max_position_embeddings": 262144,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 4096},
            },
            "reaches 16384 (4096 × 4)",
        ),
    ],
)
def test_a_drafter_that_will_draft_badly_is_remarked(change: dict[str, Any], said: str) -> None:
    (text,) = pair.remarks({**DRAFT, **change})
    assert said in text


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*DRAFT, "text_config", "rope_scaling", "sliding_window"]), JSON))
def test_any_config_is_judged_in_words(config: dict[str, Any]) -> None:
    assert all(isinstance(text, str) for text in pair.mismatches(config, config))
    assert all(isinstance(text, str) for text in pair.remarks(config))


def test_what_the_host_holds_counts_and_not_what_the_inventory_assumes() -> None:
    found = fleet.load().one("lab0")
    config = typed_config(found, "linear", {})
    shape = {"num_hidden_layers": 6, "num_attention_heads": 4, "head_dim": 64, "vocab_size": 4096}
    configs = {config.model: shape, config.draft_model: {**shape, "vocab_size": 6}}
    answer = {"configs": configs, "weights": {config.model: 100, config.draft_model: 0}}
    seen = with_configs(config, found, answer)
    assert seen.variables["engine_model_facts"]["source"] == f"{config.model}/config.json on lab0"
    said = [row.found for row in settings.rows(config, seen)]
    assert any("does not fit the target: its vocabulary is 6, the target's is 4096" in t for t in said)
    assert not [row for row in settings.rows(config, found) if row.state is State.FAIL]


def test_the_question_is_one_that_the_guard_reads() -> None:
    found = fleet.load().one("ct200")
    config = engine_config(found, "linear")
    asked = parse(question(config, found, bundle.build(config, found)))
    assert (asked.cuda, asked.gpus, asked.user) == (13, 8, "kdtree")
    assert "[Service]" in asked.unit
    assert "rank_main" in asked.collective
    small = dataclasses.replace(config, tp=1)
    assert not question(small, found, bundle.build(small, found))["collective"]


def test_a_refusal_names_the_first_row_with_cause_and_remedy() -> None:
    made = [Row("ports", State.FAIL, "by x", "stop it", "port 1 is taken"), Row("a", State.OK, "fine")]
    error = refusal(report("lab0", "linear", made, 1.0))
    assert (error.code, error.title, error.cause) == (5, "lab0: port 1 is taken", "by x")
    assert error.remedy.startswith("stop it; nothing was changed")


def test_a_refused_deploy_is_checked_with_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fleet.load().one("ct200")
    config, made = engine_config(found, "linear"), [Row("ports", State.FAIL, "by x", "stop it")]
    monkeypatch.setattr(run, "HostConnection", lambda host: contextlib.nullcontext())
    monkeypatch.setattr(run, "online", lambda *_: report("ct200", "linear", made, 1.0))
    options = repeated(["tp=8", "engine_environment={NCCL_DEBUG: WARN}"])
    check = run.before_deploy(found, config, bundle.build(config, found), options)
    with pytest.raises(KdopsError) as caught:
        check(Lines(lambda text: None))
    told = "`kdops check ct200 --profile linear --set tp=8 --set 'engine_environment={NCCL_DEBUG: WARN}'`"
    assert told in caught.value.remedy
