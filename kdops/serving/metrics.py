"""SGLang's /metrics, the values kdops shows (names: SGLang 0.5.23, observability/metrics_collector.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_COMMITS = "kdtree_commit_length_bucket"

SHOWN = (
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
    "sglang:gen_throughput",
    "sglang:spec_accept_length",
    "sglang:generation_tokens_total",
    "sglang:num_requests_total",
    "sglang:spec_verify_calls_total",
    "sglang:token_usage",
    "sglang:num_used_tokens",
    _COMMITS,
)
"""The metrics that `parse` reads; a sampler need not carry more."""


@dataclass(frozen=True)
class EngineMetrics:
    """running, queued: requests. throughput: tokens/s of SGLang's last log window. counters: since boot.

    accept_length is SGLang's own window value: all tokens over steps, not AL. kv_use: share of the KV pool in
    use, 0 to 1; kv_tokens: tokens in use. commits[i]: steps since boot that committed i + 1 tokens, as
    kdtree-engine counts them (empty for other engines); their means are AL.
    """

    running: int | None = None
    queued: int | None = None
    throughput: float | None = None
    accept_length: float | None = None
    generated: int | None = None
    requests: int | None = None
    verify_steps: int | None = None
    kv_use: float | None = None
    kv_tokens: int | None = None
    commits: tuple[int, ...] = ()


def samples(text: str) -> Iterator[Sample]:
    """Yield the finite samples of Prometheus' text format; of a torn answer those before the tear.

    Series of one priority are left out: the total holds them.
    """
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.labels.get("priority") and math.isfinite(sample.value):
                    yield sample
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        return


def parse(text: str) -> EngineMetrics:
    """Return the values found in Prometheus' text format; what is missing, malformed or NaN is None.

    Series of several schedulers are added.
    """
    sums: dict[str, float] = {}
    below: dict[float, float] = {}
    for sample in samples(text):
        if sample.name == _COMMITS:
            bound = _bound(sample.labels.get("le", ""))
            below[bound] = below.get(bound, 0.0) + sample.value
        else:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value

    def count(name: str) -> int | None:
        value = sums.get(name)
        return int(value) if value is not None and value >= 0 else None

    return EngineMetrics(
        running=count("sglang:num_running_reqs"),
        queued=count("sglang:num_queue_reqs"),
        throughput=sums.get("sglang:gen_throughput"),
        accept_length=sums.get("sglang:spec_accept_length") or None,
        generated=count("sglang:generation_tokens_total"),
        requests=count("sglang:num_requests_total"),
        verify_steps=count("sglang:spec_verify_calls_total"),
        kv_use=sums.get("sglang:token_usage"),
        kv_tokens=count("sglang:num_used_tokens"),
        commits=_commits(below),
    )


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _commits(below: Mapping[float, float]) -> tuple[int, ...]:
    """Return the steps of each commit length from the cumulative buckets (bound → steps up to it)."""
    lengths = sorted(bound for bound in below if math.isfinite(bound))
    if lengths != [float(length) for length in range(1, len(lengths) + 1)]:
        return ()
    steps = [below[length] for length in lengths]
    return tuple(max(0, int(now - before)) for now, before in zip(steps, [0.0, *steps], strict=False))
