"""What ends up on a host's record, and what does not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kdops.bench.results import ArmResult, Finding, Lossless, RunResult, SetRate
from kdops.deploy import bundle
from kdops.fleet import engine_config, load
from kdops.observe import record
from kdops.store import Store

pytestmark = pytest.mark.unit

RATE = SetRate(100.0, 3.0, 0.03, 0.1, (9, 9, 9, 9), (100.0,))
PLAIN = dataclasses.replace(RATE, acceptance_length=None)
RUN = RunResult(
    run="r1",
    host="lab0",
    created="2026-11-29T10:00:00+00:00",
    quick=False,
    arms=(
        ArmResult("linear", "linear-1", {"prose": RATE}, Lossless.IDENTICAL, ""),
        ArmResult("autoregressive", "autoregressive-1", {"prose": PLAIN}, Lossless.IDENTICAL, ""),
    ),
    comparisons={},
    per_set={},
    findings=(),
    plan={"workload": "w1", "arms": [{"name": "linear", "profile": "linear", "overrides": {}}]},
    order=("linear",),
    leg_rates=(100.0,),
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path))
    return Store()


def test_a_measurement_is_recorded_for_each_arm(store: Store) -> None:
    record.measured(RUN, store, pytest.fail)
    marks = store.marks("lab0", "linear")
    assert {(m.quantity, m.release, m.basis) for m in marks} == {
        ("AL", "linear-1", "w1"),
        ("step time", "linear-1", "w1"),
    }
    assert [m.quantity for m in store.marks("lab0", "autoregressive")] == ["step time"]


def test_a_measurement_without_a_verdict_is_not(store: Store) -> None:
    record.measured(dataclasses.replace(RUN, findings=(Finding("foreign", "x"),)), store, pytest.fail)
    assert store.marks("lab0", "linear") == []


@pytest.mark.parametrize(
    ("outcome", "values"),
    [
        ({"result": "committed", "at": "2026-11-29", "seconds": {"starting": 450.0}}, [450.0]),
        ({"result": "rolled-back", "at": "2026-11-29", "seconds": {"starting": 450.0}}, []),
        ({"result": "committed", "seconds": {}}, []),
        (None, []),
    ],
)
def test_the_start_of_a_committed_deploy_is_recorded(
    store: Store, outcome: dict[str, Any] | None, values: list[float]
) -> None:
    host = load(None).one("ct200")
    record.deployed(host, bundle.build(engine_config(host, "linear", {}), host), outcome, pytest.fail)
    assert [(m.quantity, m.value) for m in store.marks("ct200", "linear")] == [
        ("start-up time", value) for value in values
    ]


def test_a_record_that_cannot_be_written_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path / "file"))
    host = load(None).one("ct200")
    outcome = {"result": "committed", "at": "x", "seconds": {"starting": 1.0}}
    said: list[str] = []
    record.deployed(host, bundle.build(engine_config(host, "linear", {}), host), outcome, said.append)
    assert len(said) == 1 and said[0].startswith("warning:")
