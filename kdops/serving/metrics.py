"""SGLang's /metrics, the values kdops shows (names: SGLang 0.5.23, observability/metrics_collector.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class EngineMetrics:
    """running, queued: requests. throughput: tokens/s of SGLang's last log window. counters: since boot.

    accept_length is SGLang's own window value: all tokens over steps, not AL.
    """

    running: int | None = None
    queued: int | None = None
    throughput: float | None = None
    accept_length: float | None = None
    generated: int | None = None
    requests: int | None = None
    verify_steps: int | None = None


def parse(text: str) -> EngineMetrics:
    """Return the values found in Prometheus' text format; what is missing, malformed or NaN is None.

    Series of several schedulers are added; those of one priority are left out (the total holds them).
    """
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.labels.get("priority") and math.isfinite(sample.value):
                    sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        pass  # a torn answer: what came before it counts

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
    )
