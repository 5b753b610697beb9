"""What a change asks for, what the engine must report, what may be shown."""

import pytest

from kdops import fleet
from kdops.fleet import Effect, EngineConfig, effects, expected_server_info, redacted, strongest
from kdops.fleet.settings import values

pytestmark = pytest.mark.unit


def config(profile: str, **changes: object) -> EngineConfig:
    return fleet.engine_config(fleet.load().one("ct200"), profile, changes)


def test_effects_of_changes() -> None:
    before = values(config("ddtree"))
    assert effects(before, before) == {}
    assert strongest({}) is Effect.NOTHING
    changed = {**before, "smoke_tokens": 60}
    assert effects(before, changed) == {"smoke_tokens": Effect.NOTHING}
    changed["topk_cap"] = 2
    assert strongest(effects(before, changed)) is Effect.RESTART
    changed["user"] = "other"
    assert strongest(effects(before, changed)) is Effect.REDEPLOY
    assert effects(before, {**before, "gone_by_now": 1}) == {"gone_by_now": Effect.RESTART}


def test_expected_server_info_follows_the_algorithm() -> None:
    plain = expected_server_info(values(config("autoregressive")))
    assert plain["speculative_algorithm"] is None
    assert "speculative_draft_window_size" not in plain
    linear = expected_server_info(values(config("linear")))
    assert (linear["speculative_algorithm"], linear["speculative_draft_window_size"]) == ("DFLASH", 2048)
    assert "ddtree_budget" not in linear
    tree = expected_server_info(values(config("ddtree")))
    assert (tree["speculative_algorithm"], tree["ddtree_budget"]) == ("DDTREE", 32)
    assert (tree["mem_fraction_static"], tree["page_size"], tree["context_length"]) == (0.9, 1, 200_000)
    assert "max_total_tokens" not in tree, "what is left to SGLang cannot be expected"


def test_secret_looking_environment_is_a_fingerprint() -> None:
    settings = values(config("linear", environment={"HF_TOKEN": "sentinel-1", "NCCL_DEBUG": "INFO"}))
    shown = redacted(settings)["environment"]
    assert shown["NCCL_DEBUG"] == "INFO"
    assert shown["HF_TOKEN"].startswith("sha256:")
    assert "sentinel-1" not in str(shown)
    assert settings["environment"]["HF_TOKEN"] == "sentinel-1"
