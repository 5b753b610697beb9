"""How tokens are chosen: as each set says, sent as SGLang takes it, and only greedy tokens are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.bench.workloads import PromptSet, Sampling, built_in, make, read, reference, sampling
from kdops.errors import UsageError

pytestmark = pytest.mark.unit
WARM = Sampling(temperature=0.7, top_p=0.9, seed=7)


def rows(path: Path, *entries: Any) -> Path:
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return path


def test_our_own_sets_are_greedy_and_say_so() -> None:
    assert {one.sampling for one in built_in()} == {Sampling()} and Sampling().words() == "greedy"
    request = make(built_in(), quick=True).stages[0].requests[0].document()
    assert request["sampling"] == {"max_new_tokens": 48, "temperature": 0.0, "ignore_eos": True}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "x", "temperature": 0.7, "top_p": 0.9, "seed": 7},
        {
            "body": {
                "messages": [{"role": "user", "content": "x"}],
                "temperature": 0.7,
                "top_p": 0.9,
                "seed": 7,
            }
        },
        {"prompt": "x", "temperature": 0.7, "top_p": 0.9, "seed": 7, "min_p": None, "max_tokens": 5},
    ],
)
def test_a_files_rows_say_how_they_are_sampled(tmp_path: Path, row: dict[str, Any]) -> None:
    found = read(rows(tmp_path / "mine.jsonl", row, row))
    assert found == PromptSet("mine", ("x", "x"), sampling=WARM)
    assert found.digest != PromptSet("mine", ("x", "x")).digest
    stages = {stage.name: stage for stage in make([found], quick=True, rate=1.0).stages}
    sent = {"max_new_tokens": 48, "temperature": 0.7, "top_p": 0.9, "sampling_seed": 7, "ignore_eos": True}
    assert stages["mine"].requests[0].document()["sampling"] == sent
    kinds = {request.sampling for stage in stages.values() for request in stage.requests}
    assert kinds == {WARM}, "the long generation, the contexts and the streams are sampled like the set"


def test_a_file_that_mixes_kinds_of_sampling_is_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    path = rows(tmp_path / "mine.jsonl", {"prompt": "x", "temperature": 1}, {"prompt": "y"})
    with pytest.raises(UsageError) as caught:
        read(path)
    assert caught.value.cause == "entry 1: temperature 1; entry 2: greedy"
    assert read(path, WARM).sampling == WARM


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", 10**400),
        ("temperature", "0.7"),
        ("temperature", True),
        ("temperature", [1]),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", 0),
        ("top_k", 1.5),
        ("min_p", 2),
        ("frequency_penalty", 3),
        ("repetition_penalty", 0),
        ("seed", 1.5),
        ("seed", 1 << 63),
    ],
)
def test_a_value_that_cannot_be_gets_a_sentence(tmp_path: Path, key: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        read(rows(tmp_path / "mine.jsonl", {"prompt": "x"}, {"prompt": "y", key: value}))
    assert caught.value.title.startswith(f"mine.jsonl, entry 2: {key} ") and "must be" in caught.value.cause


def test_the_command_line_says_it_for_every_set() -> None:
    assert sampling.parse("temperature=0.7, top_p=0.9,seed=7") == WARM
    suite = make(built_in(), quick=True, sampling=WARM)
    assert set(suite.sampling.values()) == {WARM} and suite.load.sampling == WARM
    assert suite.digest != make(built_in(), quick=True).digest
    assert [one.sampling for one in suite.warmup.requests] == [WARM, WARM]


@pytest.mark.parametrize(
    "text", ["", "0.7", "temperature", "temperature=hot", "heat=1", "top_p=0", "seed=1e3"]
)
def test_words_on_the_command_line_that_say_nothing(text: str) -> None:
    with pytest.raises(UsageError):
        sampling.parse(text)


@given(st.text())
def test_any_words_are_a_sampling_or_an_error(text: str) -> None:
    for words in (text, f"temperature={text}"):
        try:
            found = sampling.parse(words)
        except UsageError:
            continue
        assert sampling.read(found.document(), "again") == found


def test_penalties_stay_greedy_and_are_told() -> None:
    found = sampling.parse("presence_penalty=1.5")
    assert found.greedy and found.words() == "greedy, presence_penalty 1.5"
    assert sampling.parse("temperature=1,top_k=1").greedy


def test_only_greedy_sets_are_asked_of_the_reference() -> None:
    sets = [PromptSet("a", ("x",)), PromptSet("b", ("y",), sampling=WARM)]
    suite = make(sets, quick=True)
    assert suite.greedy == ("a",)
    assert [stage.name for stage in reference(suite, margins=False)] == ["a"]
    assert {one.sampling for one in suite.warmup.requests} == {Sampling(), WARM}
