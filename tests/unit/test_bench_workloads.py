"""Workloads: the same text is the same digest, and a bad file gets a sentence."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.bench.workloads import PromptSet, built_in, make, read, reference
from kdops.errors import KdopsError, UsageError

pytestmark = pytest.mark.unit


def test_the_built_in_sets_are_the_published_version() -> None:
    sets = built_in()
    assert [one.name for one in sets] == ["repetitive", "prose", "code", "reasoning", "long-context"]
    assert {one.digest for one in sets} == {one.digest for one in built_in()}
    assert make(sets, quick=False).digest == make(sets, quick=False).digest != make(sets, quick=True).digest


def test_keys_are_unique_and_the_default_has_a_long_generation() -> None:
    suite = make(built_in(), quick=False, context_length=8192)
    requests = [request for stage in suite.stages for request in stage.requests]
    assert len({request.key for request in requests}) == len(requests)
    assert max(request.tokens for request in requests) >= 1500
    assert all(request.pad_to + request.tokens <= 8192 for request in requests)


@pytest.mark.parametrize(
    "text",
    [
        '{"prompt": "one"}\n{"text": "two"}\n\n',
        '{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": '
        '[{"role": "system", "content": "be kind"}, {"role": "user", "content": "one"}]}}\n"two"\n',
        '{"body": {"messages": [{"role": "user", "content": [{"type": "text", "text": "o"}, {"type": "text", '
        '"text": "ne"}]}]}}\n"two"\n',
        json.dumps([{"conversations": [{"from": "human", "value": w}]} for w in ("one", "two")]),
        '{"prompt": "one", "id": "a\u2028b\x85"}\r\n{"prompt": "two"}\r\n',
    ],
)
def test_the_three_forms(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(text)
    assert read(path) == PromptSet("mine", ("one", "two"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b'{"prompt": ""}', "entry 1"),
        (b'{"prompt": "x"}\n{"prompt": null}', "entry 2"),
        (b"{", "line 1"),
        (b"[1, 2]", "entry 1"),
        (b"\xff\xfe", "utf-8"),
        (b"[" * 100_000, "recursion"),
        (b'{"conversations": [{"from": "gpt", "value": "x"}]}', "entry 1"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "entry 1"),
        (b'{"prompt": "x \\ud800"}', "half a character"),
    ],
)
def test_a_bad_file_gets_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read(path)
    assert said in caught.value.cause


def test_a_huge_file_gets_a_sentence(tmp_path: Path) -> None:
    with (path := tmp_path / "huge.jsonl").open("wb") as file:
        file.truncate(257 << 20)
    with pytest.raises(UsageError) as caught:
        read(path)
    assert "more than 256 MiB" in caught.value.cause


def test_a_name_that_is_no_text_gets_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "mine\udcff.jsonl"
    path.write_text('{"prompt": "x"}')
    with pytest.raises(UsageError) as caught:
        read(path)
    assert "its name is no UTF-8" in caught.value.cause


def test_a_device_gets_a_sentence() -> None:
    with pytest.raises(UsageError) as caught:
        read(Path("/dev/zero"))
    assert "a device" in caught.value.cause


def test_a_missing_file_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read(tmp_path / "none.jsonl")


@given(st.binary(max_size=200))
def test_any_bytes_are_prompts_or_an_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.jsonl"
        path.write_bytes(content)
        with contextlib.suppress(KdopsError):
            assert all(prompt.strip() for prompt in read(path).prompts)


def test_sets_that_do_not_fit_are_refused() -> None:
    for sets, length in (
        ((PromptSet("a", ("x",), 4000),), 4096),
        ((PromptSet("a", ("x",)), PromptSet("a", ("y",))), None),
        ((PromptSet("long", ("x",)),), None),
        ((PromptSet("a", ()),), None),
        ((), None),
    ):
        with pytest.raises(UsageError):
            make(sets, quick=False, context_length=length)


def test_levels_and_arrivals_become_stages_of_their_own() -> None:
    suite = make(built_in(), quick=True, levels=(16, 4, 4), rate=0.4)
    stages = {stage.name: stage for stage in suite.stages}
    assert [stages[f"concurrent-{n}"].concurrency for n in (4, 16)] == [4, 16]
    arrivals = stages["open-loop-0.4"]
    assert len(arrivals.starts) == len(arrivals.requests) == 2
    assert arrivals.starts[0] == 0 and list(arrivals.starts) == sorted(arrivals.starts)
    again = make(built_in(), quick=True, levels=(4, 16), rate=0.4)
    assert suite.digest == again.digest, "arrivals are the same in every leg and run"
    assert make(built_in(), quick=True, levels=()).stages[-1].name == "context"


@pytest.mark.parametrize(
    ("levels", "rate"),
    [((0,), None), ((513,), None), ((4,), 0.0), ((4,), -1.0), ((4,), 1e9), ((4,), float("nan"))],
)
def test_streams_and_arrivals_that_cannot_be(levels: tuple[int, ...], rate: float | None) -> None:
    with pytest.raises(UsageError):
        make(built_in(), quick=True, levels=levels, rate=rate)


def test_length_and_repetition_are_chosen_and_kept_for_a_resume() -> None:
    suite = make(built_in(), quick=False, tokens=256, prompts=2, context_length=8192)
    stages = {stage.name: stage for stage in suite.stages}
    assert [request.tokens for request in stages["prose"].requests] == [256, 256]
    assert (suite.load.tokens, suite.load.prompts, suite.load.levels) == (256, 2, (4,))
    assert suite.digest != make(built_in(), quick=False, context_length=8192).digest
    small = make([PromptSet("a", ("x",))], quick=False, context_length=1024)
    assert next(stage for stage in small.stages if stage.name == "long").requests[0].tokens == 512


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"tokens": 7}, {"tokens": 10**6}, {"prompts": 0}])
def test_a_load_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        make(built_in(), quick=False, **wrong)  # type: ignore[arg-type]


def test_the_reference_asks_for_margins_outside_fp32_only() -> None:
    suite = make(built_in(), quick=True)
    assert [stage.name for stage in reference(suite, margins=False)] == list(suite.sets)
    stages = reference(suite, margins=True)
    assert [stage.name for stage in stages] == [*suite.sets, "again-4", "again-16"]
    assert all(request.margins for stage in stages[:5] for request in stage.requests)
    assert not any(request.margins for stage in stages[5:] for request in stage.requests)
    assert stages[5].requests[0].key == "again-4/repetitive/0" and stages[5].concurrency == 4
