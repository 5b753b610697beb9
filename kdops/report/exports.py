"""A result for other tools: OpenMetrics for Prometheus, and AIPerf's record of each request.

AIPerf's names: ai-dynamo/aiperf, MetricRecordInfo (metadata, metrics as value and unit, error) and
SpecDecodeAcceptanceRecord (spec_decode_acceptance), one JSON document a line as in its profile_export.jsonl.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics.exposition import generate_latest

from kdops.bench.records import RequestRecord
from kdops.bench.results import RunResult

_PER_SET = {
    "tokens_per_second": "Decoding speed, mean over legs",
    "acceptance_length": "Tokens committed by a step",
    "step_time": "Seconds of a draft and verify round",
    "ttft": "Seconds to the first token",
}


def openmetrics(result: RunResult) -> str:
    """Return the result in OpenMetrics text format, made for a node exporter's textfile collector."""
    registry = CollectorRegistry()
    base = {"host": result.host, "run": result.run}

    def gauge(name: str, words: str, *labels: str) -> Gauge:
        return Gauge(f"kdops_ab_{name}", words, [*base, *labels], registry=registry)

    speeds = {field: gauge(field, words, "arm", "set") for field, words in _PER_SET.items()}
    steps = gauge("steps", "Verify steps by the drafts they accepted", "arm", "set", "accepted")
    lossless = gauge("lossless", "1: the arm's tokens were judged so", "arm", "outcome")
    for arm in result.arms:
        lossless.labels(**base, arm=arm.name, outcome=arm.lossless).set(1)
        for name, rate in arm.per_set.items():
            for field, metric in speeds.items():
                value = getattr(rate, field)
                if value is not None:
                    metric.labels(**base, arm=arm.name, set=name).set(value)
            for accepted, count in enumerate(rate.histogram):
                steps.labels(**base, arm=arm.name, set=name, accepted=str(accepted)).set(count)
    ratio = gauge("ratio", "tokens/s over the baseline's; bound: low or high of 95 %", "arm", "bound")
    call = gauge("call", "1: what may be said of the arm", "arm", "call")
    for name, one in result.comparisons.items():
        call.labels(**base, arm=name, call=one.call).set(1)
        for bound, value in (("estimate", one.ratio), ("low", one.low), ("high", one.high)):
            if value is not None:
                ratio.labels(**base, arm=name, bound=bound).set(value)
    return bytes(generate_latest(registry)).decode()  # type: ignore[no-untyped-call]


def aiperf(result: RunResult, records: Sequence[RequestRecord]) -> str:
    """Return one JSON document a line for each request, in the form of AIPerf's profile_export.jsonl."""
    started = datetime.fromisoformat(result.created).timestamp()
    lines = (_aiperf(number, one, started) for number, one in enumerate(records))
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def _aiperf(number: int, one: RequestRecord, started: float) -> dict[str, Any]:
    began = round((started if one.began is None else one.began) * 1e3) * 1_000_000  # it is kept in ms
    later = one.completion_tokens - one.first_tokens
    metrics = {
        "request_latency": _value(one.seconds * 1e3, "ms"),
        "time_to_first_token": _value(one.ttft * 1e3, "ms"),
        "input_sequence_length": _value(one.prompt_tokens, "tokens"),
        "output_sequence_length": _value(one.completion_tokens, "tokens"),
    }
    if later > 0 and one.decode_seconds > 0:
        metrics["inter_token_latency"] = _value(one.decode_seconds / later * 1e3, "ms")
        metrics["output_token_throughput_per_user"] = _value(later / one.decode_seconds, "tokens/sec/user")
    return {
        "metadata": {
            "session_num": number,
            "x_request_id": f"leg-{one.leg}/{one.key}",
            "conversation_id": one.key,
            "turn_index": 0,
            "request_start_ns": began,
            "request_end_ns": began + round(one.seconds * 1e9),
            "worker_id": one.arm,
            "record_processor_id": "kdops",
            "benchmark_phase": "profiling",
        },
        "metrics": metrics,
        "spec_decode_acceptance": _acceptance(one),
        "error": None,
    }


def _value(value: float, unit: str) -> dict[str, Any]:
    return {"value": value, "unit": unit}


def _acceptance(one: RequestRecord) -> dict[str, Any] | None:
    """AIPerf refuses a record without the number of proposed drafts, so there is none then."""
    found = one.acceptance
    if found is None or not found.histogram or one.proposed is None or one.proposed < found.accepted:
        return None
    return {
        "engine": "sglang",
        "mean_acceptance_length": found.length,
        "draft_acceptance_rate": found.accepted / one.proposed if one.proposed else 0.0,
        "acceptance_histogram": {str(i): n for i, n in enumerate(found.histogram) if n},
        "num_accepted_draft_tokens": found.accepted,
        "num_draft_tokens": one.proposed,
        "num_spec_steps": found.steps,
        "num_spec_tokens": one.proposed // found.steps if found.steps else None,
        "completion_tokens": one.completion_tokens,
    }
