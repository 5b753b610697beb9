"""The noise floor of a host: how far two equal arms were apart."""

from __future__ import annotations

import math

from kdops.bench.results import RunResult
from kdops.store import Store


def noise(result: RunResult) -> float | None:
    """Return the log ratio an A/A run could not rule out (its interval's far end), None for other runs."""
    if len(result.arms) != 2 or result.arms[0].release != result.arms[1].release or not result.valid:
        return None
    one = next(iter(result.comparisons.values()), None)
    if one is None or one.low is None or one.high is None:
        return None
    return max(abs(math.log(one.low)), abs(math.log(one.high)))


def known(host: str, but: str, store: Store) -> float:
    """Return the noise of the newest A/A run on the host other than the run `but`, 0 when there was none."""
    found = (run.result.get("noise") for run in store.runs(host) if run.id != but and run.result)
    return next((float(value) for value in found if isinstance(value, int | float)), 0.0)
