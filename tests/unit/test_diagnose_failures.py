"""Recorded lines through the classifier: the right class, the first cause, and never a guess."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kdops.diagnose.failure_class import Kind
from kdops.diagnose.failures import CLASSES, classify
from kdops.diagnose.needles import needles

pytestmark = pytest.mark.unit

SCENARIOS: Sequence[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent.parent / "scenarios/failures.yml").read_text()
)
DAY = "Nov 29 10:00:00 ct200 "


def found(text: str) -> str:
    failure = classify(text.splitlines())
    return failure.failure_class.id if failure else "unknown"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s["expect"])
def test_a_recorded_failure_is_named(scenario: dict[str, Any]) -> None:
    assert found(scenario["text"]) == scenario["expect"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s["expect"])
def test_the_journals_prefix_changes_nothing(scenario: dict[str, Any]) -> None:
    lines = [
        line
        if line.startswith(("systemd[", "kernel:"))
        else f"python[4711]: {line}"
        if not line.startswith(("Starting ", "kdtree-lab0.service:"))
        else f"systemd[1]: {line}"
        for line in scenario["text"].splitlines()
    ]
    assert found("\n".join(DAY + line for line in lines)) == scenario["expect"]


def test_every_class_has_a_scenario() -> None:
    assert {one.id for one in CLASSES} - {s["expect"] for s in SCENARIOS} == set()


def test_ids_are_unique_and_texts_are_sentences() -> None:
    assert len({one.id for one in CLASSES}) == len(CLASSES)
    for one in CLASSES:
        assert one.title and one.cause and one.remedy and one.patterns, one.id
        assert not one.cause.endswith(".") and not one.remedy.endswith("."), one.id


def test_the_lines_that_show_it_are_kept_and_few() -> None:
    line = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    failure = classify([f"[TP{rank}] {line}" for rank in range(8)])
    assert failure is not None
    assert failure.lines[0] == f"[TP0] {line}"
    assert len(failure.lines) == 5


def test_a_raised_fraction_and_a_lowered_one_are_told_apart() -> None:
    """O1: one message says raise the memory fraction, the docs say lower it."""
    remedies = {one.id: one.remedy for one in CLASSES}
    assert remedies["pool-too-small"].startswith("raise engine_memory_fraction")
    assert remedies["oom-serving"].startswith("lower engine_memory_fraction")
    assert "raise" in next(c.cause for c in CLASSES if c.id == "oom")


def test_the_kernel_that_does_not_fit_is_named_with_its_backend() -> None:
    """O22."""
    text = "out of resource: shared memory, Required: 106496, Hardware limit: 101376."
    failure = classify([text])
    assert failure is not None
    assert "engine_attention_backend: triton" in failure.failure_class.remedy
    assert "106496" in failure.lines[0]


def test_an_engine_that_went_on_has_not_failed() -> None:
    failure = classify(
        ["The server is fired up and ready to roll!", "CUDA out of memory", "Decode batch, #running-req: 1,"]
    )
    assert failure is not None
    assert not failure.fatal


def test_an_ending_is_named_only_without_a_cause() -> None:
    assert next(c for c in CLASSES if c.id == "process-killed").kind is Kind.END
    assert found("Main process exited, code=killed, status=9/KILL\nCUDA out of memory") == "oom"


@given(st.sampled_from([p for one in CLASSES for p in one.patterns]).flatmap(st.from_regex))
def test_the_cheap_test_never_hides_a_match(text: str) -> None:
    everything = needles(pattern for one in CLASSES for pattern in one.patterns)
    assert any(needle in text for needle in everything)


def test_a_pattern_without_a_literal_part_is_refused() -> None:
    with pytest.raises(ValueError, match="four characters"):
        needles([r"[ab]+\d*x?"])


@given(st.lists(st.text(max_size=300), max_size=20))
def test_any_text_is_allowed(lines: list[str]) -> None:
    classify(lines)


def test_a_very_long_line_takes_no_time() -> None:
    assert classify(["NCCL WARN P2P " * 500_000]) is None
