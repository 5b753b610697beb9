"""The class of a failure in front of what the guard saw."""

from __future__ import annotations

import pytest

from kdops.deploy.why import named
from kdops.diagnose.failures import classify
from kdops.errors import KdopsError

pytestmark = pytest.mark.unit

ERROR = KdopsError("r did not start", cause="it died", remedy="read", code=6, evidence=("last line",))  # type: ignore[arg-type]
START = ["Starting kdtree-x.service", "Load weight begin"]


def test_a_known_failure_is_named_first_and_linked() -> None:
    told = named(ERROR, classify([*START, "torch.OutOfMemoryError: CUDA out of memory. Tried", "then noise"]))
    assert (told.title, told.code) == ("r did not start", 6)
    assert told.cause.startswith("GPU memory ran out while loading: ")
    assert told.cause.endswith("(it died)")
    assert "see docs/failures.md#oom-loading. read" in told.remedy
    assert told.evidence == ("torch.OutOfMemoryError: CUDA out of memory. Tried", "last line")


def test_an_unknown_failure_is_not_guessed() -> None:
    assert named(ERROR, classify([*START, "something never seen"])) is ERROR


def test_what_the_engine_survived_is_not_the_cause() -> None:
    lived = classify(
        ["Starting kdtree-x.service", "fired up and ready", "CUDA out of memory. Tried", "Decode batch, #x"]
    )
    assert lived is not None
    assert not lived.fatal
    assert named(ERROR, lived) is ERROR
