"""GPU samples as nvidia-smi wrote them on one H200 (driver 580): idle, ramping up, under its power cap."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.bench.clocks import gap_findings, parse, summary
from kdops.bench.load.gpu_watch import GpuWatch

pytestmark = pytest.mark.unit

IDLE = "0, 345, 1980, 76.83, 700.00, 34, 0, 0, 0x0000000000000001"
WORKING = "0, 1980, 1980, 90.49, 700.00, 35, 1, 1101, 0x0000000000000000"
CAPPED = "0, 1755, 1980, 604.92, 700.00, 51, 94, 1101, 0x0000000000000004"
HOT = "0, 1200, 1980, 400.00, 700.00, 90, 94, 1101, 0x0000000000000044"  # CAPPED, with the thermal bit


def test_a_leg_is_summed_over_the_seconds_with_work() -> None:
    use = summary([IDLE, WORKING, CAPPED, CAPPED, "torn line", "1, [N/A]"])
    assert use is not None and (use.gpus, use.samples) == (1, 4)
    assert use.sm_clock == 1755 and use.max_clock == 1980, "an idle second says nothing of the arm"
    assert use.power == pytest.approx((90.49 + 2 * 604.92) / 3) and use.power_limit == 700
    assert use.temperature == 51 and use.memory == 1101 and use.busy == pytest.approx(1.89 / 4)
    assert use.reasons == ("power cap",) and not use.throttled
    assert summary([]) is None


def test_what_the_driver_does_not_tell_is_nothing() -> None:
    sample = parse("3, [N/A], 1980, [Not Supported], nan, 51, [N/A], 7, [N/A]")
    assert sample is not None and sample.index == 3 and sample.memory == 7
    assert (sample.clock, sample.power, sample.limit, sample.busy, sample.reasons) == (None,) * 4 + ((),)


@given(st.text(max_size=80))
def test_no_line_breaks_the_parser(line: str) -> None:
    parse(line)


def test_a_clock_gap_under_a_power_cap_is_told_and_one_under_heat_voids() -> None:
    fast, capped, hot = (summary([line] * 3) for line in (WORKING, CAPPED, HOT))
    assert gap_findings({"linear": [fast], "ddtree": [fast]}) == ()
    (told,) = gap_findings({"linear": [fast], "ddtree": [capped]})
    assert not told.fatal and told.where == "ddtree" and "-11.4%" in told.evidence
    assert "power cap" in told.evidence
    (void,) = gap_findings({"linear": [fast], "ddtree": [hot]})
    assert void.fatal and "hardware thermal slowdown" in void.evidence
    assert gap_findings({"linear": [None], "ddtree": [hot]}) == ()


def test_the_watch_keeps_what_nvidia_smi_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "nvidia-smi"  # named as the real one, replays the recorded lines
    fake.write_text(f"#!/bin/sh\nprintf '%s\\n' '{IDLE}' '{CAPPED}'\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    watch = GpuWatch()
    assert watch.seen.wait(10), "the first line came"
    assert watch.end() == [IDLE, CAPPED]


def test_a_machine_without_nvidia_smi_has_no_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert GpuWatch().end() is None
