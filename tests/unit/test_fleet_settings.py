"""The table of settings against SGLang's own options, and what happens to a wrong value."""

import json
import math
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from fleet_files import host, write
from hypothesis import given
from hypothesis import strategies as st

from kdops import fleet
from kdops.errors import UsageError
from kdops.fleet import SETTINGS, EngineConfig, engine_config, values
from kdops.fleet.settings import Setting

pytestmark = pytest.mark.unit

OPTIONS: dict[str, dict[str, Any]] = json.loads(
    (Path(fleet.__file__).parent / "sglang-0.5.23-options.json").read_text()
)
WITH_FLAG = {name: row for name, row in SETTINGS.items() if row.flag and not row.flag.startswith("--ddtree-")}
HINTS = get_type_hints(EngineConfig)


def literal(name: str) -> tuple[str, ...]:
    hints = [HINTS[name], *get_args(HINTS[name])]
    return next((get_args(hint) for hint in hints if get_origin(hint) is Literal), ())


@pytest.mark.parametrize(("name", "row"), WITH_FLAG.items())
def test_flag_exists_in_sglang(name: str, row: Setting) -> None:
    option = OPTIONS[row.flag or ""]
    assert option["switch"] == (HINTS[name] is bool)
    if row.reported:
        assert option["dest"] == row.reported
    if option["choices"]:
        assert set(literal(name)) - {"autoregressive"} <= set(option["choices"])


def test_parsers_are_sglangs_own_choices() -> None:
    assert "kimi_k2" in OPTIONS["--reasoning-parser"]["choices"]
    assert "kimi_k2" in OPTIONS["--tool-call-parser"]["choices"]


def test_every_row_is_documented_and_has_one_destination() -> None:
    flags = [row.flag for row in SETTINGS.values() if row.flag]
    assert len(flags) == len(set(flags))
    for row in SETTINGS.values():
        assert row.doc
        assert not (row.flag and row.env)


def refused(found: fleet.Host, profile: str | None = None, **overrides: Any) -> list[str]:
    with pytest.raises(UsageError) as caught:
        engine_config(found, profile, overrides)
    return [caught.value.cause, *caught.value.evidence]


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    extra = (
        'engine_prot: 1\nengine_tp: "8"\nengine_memory_fraction: 1.0\nengine_dtype: bfloat\n'
        "engine_environment: {A B: c}\nengine_extra_args: {page-size: 4}\n"
        "engine_trust_remote_code: yes please\n"
        "engine_profiles: {wide: {engine_tree_bugdet: 64, engine_algorithm: DDTREE}}\n"
    )
    lines = refused(host(tmp_path, extra), "wide")
    expected = {
        10: "unknown key 'engine_prot' (did you mean 'engine_port'?)",
        11: "engine_tp: '8' is not a whole number; allowed: a whole number from 1 to 64",
        12: "engine_memory_fraction: 1.0 is out of range; allowed: a number strictly between 0 and 1",
        13: "engine_dtype: 'bfloat' is not allowed (did you mean 'bfloat16'?); allowed: auto, bfloat16",
        14: "engine_environment: 'A B' is not the name of an environment variable",
        15: "engine_extra_args: --page-size has its own key: engine_page_size",
        16: "engine_trust_remote_code: 'yes please' is not true or false",
        17: "unknown key 'engine_tree_bugdet' (did you mean 'engine_tree_budget'?)",
    }
    assert len(lines) == len(expected)
    for line, (number, text) in zip(lines, expected.items(), strict=True):
        assert line.startswith(f"{tmp_path}/fleet.yml:{number}: {text}")


def test_unknown_profile_names_its_place_and_neighbours(tmp_path: Path) -> None:
    found = host(tmp_path, "engine_profile: ddtre\n")
    (line,) = refused(found)
    assert line.startswith(
        f"{tmp_path}/fleet.yml:10: unknown profile 'ddtre' (did you mean 'ddtree'?); known: "
    )
    (line,) = refused(found, "linaer")
    assert line.startswith("--profile: unknown profile 'linaer' (did you mean 'linear'?)")


def test_layers_in_order_and_where_each_value_is_from(tmp_path: Path) -> None:
    extra = (
        "engine_page_size: 4\nengine_profiles:\n"
        "  linear: {engine_page_size: 8}\n  ddtree: {engine_topk_cap: 2}\n"
    )
    found = host(tmp_path, extra, group_vars="engine_port: 1234\n")
    config = engine_config(found, "linear")
    assert (config.page_size, str(config.origins["page_size"])) == (8, f"{tmp_path}/fleet.yml:12")
    assert (config.port, str(config.origins["port"])) == (1234, f"{tmp_path}/group_vars/all.yml:1")
    assert (config.bind, str(config.origins["bind"])) == ("127.0.0.1", "default")
    assert (config.algorithm, str(config.origins["algorithm"])) == ("DFLASH", "profile linear")
    config = engine_config(found, "linear", {"engine_page_size": "16", "draft_window": 64})
    assert (config.page_size, str(config.origins["page_size"])) == (16, "--set")
    assert config.draft_window == 64
    assert engine_config(found, "ddtree").topk_cap == 2


def test_chain_profile_follows_the_block_size(tmp_path: Path) -> None:
    config = engine_config(host(tmp_path), "ddtree-chain", {"block_size": "6"})
    assert (config.algorithm, config.tree_budget, config.topk_cap) == ("DDTREE", 6, 1)


def test_profile_of_ones_own(tmp_path: Path) -> None:
    found = host(
        tmp_path, "engine_profiles: {mine: {engine_algorithm: DFLASH, engine_draft_window: 9}, half: {}}\n"
    )
    assert engine_config(found, "mine").draft_window == 9
    (line,) = refused(found, "half")
    assert "engine_algorithm is not set" in line


@pytest.mark.parametrize("text", ["engine_profiles: 3", "engine_profiles: [a]", "engine_profiles: {x: 1}"])
def test_malformed_profiles_are_refused(tmp_path: Path, text: str) -> None:
    assert "must" in refused(host(tmp_path, text), "linear")[0]


def test_profiles_not_in_use_are_checked_too(tmp_path: Path) -> None:
    text = "engine_profiles:\n  ddtree: {engine_topk_cap: 0}\n  x: {engine_algorithm: DFLSH}\n"
    first, second = refused(host(tmp_path, text), "linear")
    assert first.startswith(f"{tmp_path}/fleet.yml:11: engine_topk_cap: 0 is out of range")
    assert second.startswith(f"{tmp_path}/fleet.yml:12: engine_algorithm: 'DFLSH' is not allowed")


def test_required_settings_are_asked_for(tmp_path: Path) -> None:
    root = write(tmp_path, {"f.yml": "all: {hosts: {h1: {gpu: h200-sxm, gpu_count: 1}}}\n"})
    (line,) = refused(fleet.load(root / "f.yml").one("h1"), "autoregressive")
    assert line.startswith(f"{root}/f.yml: engine_model is not set")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("port", "0", "from 1 to 65535"),
        ("port", "80.5", "whole number"),
        ("port", "true", "whole number"),
        ("port", "[1", "not valid YAML"),
        ("memory_fraction", ".nan", "not a number"),
        ("memory_fraction", ".inf", "not a number"),
        ("memory_fraction", "9" * 400, "not a number"),
        ("memory_fraction", "null", "must not be null"),
        ("model", "--help", "must match"),
        ("model", "a\nb", "must match"),
        ("model", "a\x9b31mb", "must match"),
        ("model", "", "must"),
        ("user", "root;x", "must match"),
        ("bind", "$(x)", "must match"),
        ("bind", "999.1.1.1", "neither an IP address nor a host name"),
        ("bind", "127.0.0", "neither an IP address nor a host name"),
        ("bind", "fe80:::1", "neither an IP address nor a host name"),
        ("bind", "box..net", "neither an IP address nor a host name"),
        ("bind", "-box", "neither an IP address nor a host name"),
        ("environment", "{PYTHONPATH: /x}", "set by kdops itself"),
        ("environment", "{KDTREE_X: '1'}", "set by kdops itself"),
        ("environment", "{A: [1]}", "put it in quotes"),
        ("environment", "{A: 1.5}", "put it in quotes"),
        ("environment", "{A: yes}", "put it in quotes"),
        ("environment", '{A: "\\0"}', "U+0000"),
        ("environment", '{A: "\\uFFFF"}', "U+FFFF"),
        ("extra_args", "{api-key: x}", "secret"),
        ("extra_args", "{ssl-keyfile-password: x}", "secret"),
        ("extra_args", "{config: x}", "own file"),
        ("extra_args", "{--x: 1}", "option name"),
        ("extra_args", "{log-level: -v}", "starts with a dash"),
        ("extra_args", "{x: {y: 1}}", "list of them"),
        ("extra_args", "[--a, b]", "mapping"),
        ("extra_args", "{1: a}", "option name"),
        ("environment", "{null: a}", "environment variable"),
        ("tp", "2026-99-99", "not valid YAML"),
        ("tp", "!!int abc", "not valid YAML"),
        ("tp", "9" * 5000, "not valid YAML"),
        ("tp", "[" * 3000, "not valid YAML"),
    ],
)
def test_wrong_values_say_what_is_allowed(tmp_path: Path, key: str, value: str, said: str) -> None:
    (line,) = refused(host(tmp_path), "linear", **{key: value})
    assert line.startswith(f"--set: engine_{key}: ")
    assert said in line


@pytest.mark.parametrize(
    ("extra", "overrides", "remedy"),
    [
        ("engine_tp: 16\n", {}, "correct it there, or override once with --set"),
        ("engine_tp: wide\n", {}, "correct it there, or override once with --set"),
        ("engine_prot: 1\n", {}, "correct it there"),
        ("engine_tp: wide\nengine_prot: 1\n", {}, "correct these 2 places there"),
        ("engine_service: a b\n", {}, "correct it there"),
        ("engine_profiles: {other: {engine_tp: wide}}\n", {}, "correct it there"),
        ("", {"tp": "wide"}, "correct it there"),
    ],
)
def test_set_is_a_remedy_only_where_it_helps(
    tmp_path: Path, extra: str, overrides: dict[str, str], remedy: str
) -> None:
    with pytest.raises(UsageError) as caught:
        engine_config(host(tmp_path, extra), "linear", overrides)
    assert caught.value.remedy == remedy


def test_set_is_no_remedy_for_a_hosts_hardware(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        host(tmp_path, "ansible_port: none\n")
    assert caught.value.remedy == "correct it there"


@pytest.mark.parametrize(("key", "place"), [("gpu_count", ":5"), ("gpu", ":4"), ("ansible_host", "")])
def test_set_of_what_belongs_to_the_host_says_where_to_write_it(tmp_path: Path, key: str, place: str) -> None:
    (line,) = refused(host(tmp_path), "linear", **{key: "8"})
    where = f"{tmp_path}/fleet.yml{place}"
    assert line == f"--set: {key} describes the host and is no setting; write it there: {where}"


@pytest.mark.parametrize("name", ["a b", "../etc", "a%n", "", "-x"])
def test_service_names_that_no_unit_can_have_are_refused(tmp_path: Path, name: str) -> None:
    (line,) = refused(host(tmp_path, f"engine_service: {name!r}\n"), "linear")
    assert line.startswith(f"{tmp_path}/fleet.yml:10: engine_service: ")


def test_service_is_the_hosts_own(tmp_path: Path) -> None:
    found = host(tmp_path, "engine_service: llm\nengine_profiles: {linear: {engine_service: other}}\n")
    assert found.service == "llm"
    profile, command_line = refused(found, "linear", service="third")
    assert profile.startswith("--set: engine_service names the host's only service")
    assert command_line.startswith(f"{tmp_path}/fleet.yml:11: engine_service names")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
)


@given(name=st.sampled_from(sorted(SETTINGS)), value=anything)
def test_any_value_is_taken_whole_or_refused(name: str, value: Any) -> None:
    try:
        taken = values.parse(name, value)
    except values.Wrong as wrong:
        assert str(wrong)
        return
    row = SETTINGS[name]
    if isinstance(taken, int | float) and not isinstance(taken, bool):
        assert math.isfinite(taken)
        assert taken == value
        assert row.low is None or taken >= row.low
        assert row.high is None or taken <= row.high
    elif isinstance(taken, str | bool) or taken is None:
        assert taken == value
    assert values.parse(name, taken) == taken


@given(name=st.sampled_from(sorted(SETTINGS)), text=st.text())
def test_any_text_of_set_is_read_or_refused(name: str, text: str) -> None:
    try:
        values.parse(name, values.from_text(name, text))
    except values.Wrong as wrong:
        assert str(wrong)
