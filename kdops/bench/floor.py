"""The noise floor of a host: how far two equal arms were apart."""

from __future__ import annotations

import math

from kdops.bench.results import RunResult
from kdops.store import Store, StoredRun


def noise(result: RunResult) -> float | None:
    """Return the log ratio an A/A run could not rule out (its interval's far end), None for other runs."""
    if len(result.arms) != 2 or result.arms[0].release != result.arms[1].release or not result.valid:
        return None
    one = next(iter(result.comparisons.values()), None)
    if one is None or one.low is None or one.high is None:
        return None
    return max(abs(math.log(one.low)), abs(math.log(one.high)))


def known(run: StoredRun, store: Store) -> float:
    """Return the noise of the newest A/A run on the host before `run`, 0 when there was none.

    A later one would change what an old run said.
    """
    newest_first = [other for other in store.runs(run.host) if other.created < run.created and other.result]
    found = (other.result.get("noise") for other in newest_first if other.result)
    return next((float(value) for value in found if isinstance(value, int | float)), 0.0)
