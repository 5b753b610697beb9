"""Requested against effective, and settings that cost speed."""

from __future__ import annotations

import math
from typing import Any

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.finding import Confidence, Finding, Severity
from kdops.fleet.changes import expected_server_info
from kdops.fleet.settings import SETTINGS
from kdops.loose import positive

_OFF = 0.05
_FALLBACK = 0.01
_RADIX = "disable-radix-cache"


def effective(e: Evidence) -> tuple[Finding, ...]:
    """The engine runs with other values than asked for."""
    if not e.settings or e.settings.effective is None or not SETTINGS.keys() <= e.settings.requested.keys():
        return ()
    told = e.settings.effective
    seen = [
        f"{key}: asked {value}, runs with {told[key]}"
        for key, value in expected_server_info(e.settings.requested).items()
        if key in told and not _same(value, told[key])
    ]
    if not seen:
        return ()
    return (
        Finding(
            "effective-differs",
            "the engine does not run with the settings that were asked for",
            Severity.WRONG,
            Confidence.CERTAIN,
            "SGLang adjusts some settings by itself, and a hand-edited launch configuration does too",
            "set the value that it can run with, so that configuration and engine agree",
            f"kdops plan {e.host}",
            tuple(seen),
        ),
    )


def prefix_cache_off(e: Evidence) -> tuple[Finding, ...]:
    """Every prompt is computed from its first token."""
    extra = e.setting("extra_args") or {}
    asked = isinstance(extra, dict) and bool(extra.get(_RADIX) or extra.get(_RADIX.replace("-", "_")))
    runs = bool(e.settings and e.settings.effective and e.settings.effective.get("disable_radix_cache"))
    if not asked and not runs:
        return ()
    where = "engine_extra_args" if asked else "/server_info, not in the inventory"
    return (
        Finding(
            "prefix-cache-off",
            "the prefix cache is off",
            Severity.SLOW,
            Confidence.CERTAIN,
            "with disable-radix-cache every prompt is computed again, also what earlier requests shared",
            "remove disable-radix-cache from engine_extra_args",
            f"kdops config {e.host}",
            (f"disable-radix-cache: true ({where})",),
        ),
    )


def pool_below_context(e: Evidence) -> tuple[Finding, ...]:
    """The longest request that is allowed does not fit into the KV pool."""
    pool, context = _sizes(e)
    if not pool or not context or pool >= context:
        return ()
    refused = e.journal.refused if e.journal else 0
    return (
        Finding(
            "kv-pool-below-context",
            "the KV pool is smaller than the context",
            Severity.WRONG,
            Confidence.CERTAIN,
            f"a request above {pool:,} tokens is refused, although {context:,} are allowed",
            f"lower engine_context_length to {pool:,}, or raise engine_memory_fraction",
            f"kdops check {e.host}",
            (
                f"pool {pool:,} tokens, context {context:,}",
                *((f"{refused:,} requests were refused as too long",) if refused else ()),
            ),
        ),
    )


def _sizes(e: Evidence) -> tuple[int | None, int | None]:
    """Return (KV pool, longest context) in tokens as the engine says them, in its journal or /server_info."""
    told = e.settings.effective if e.settings and e.settings.effective else {}
    pool = (e.journal.pool if e.journal else None) or positive(told.get("max_total_num_tokens"))
    context = (e.journal.context if e.journal else None) or positive(told.get("context_length"))
    return pool, context


def prediction_off(e: Evidence) -> tuple[Finding, ...]:
    """The pool is not what the memory model predicted."""
    pool, _ = _sizes(e)
    if not pool or not e.predicted_pool or abs(pool / e.predicted_pool - 1) < _OFF:
        return ()
    return (
        Finding(
            "pool-prediction-off",
            "the KV pool is not as large as predicted",
            Severity.NOTE,
            Confidence.CERTAIN,
            "weights, the drafter's KV cache or what else is on the GPU take another share than the "
            "memory model counts",
            "give engine_model_facts and engine_draft_facts the real sizes; see what else holds GPU memory",
            f"kdops check {e.host}",
            (f"predicted {e.predicted_pool:,} tokens, holds {pool:,} ({pool / e.predicted_pool - 1:+.0%})",),
        ),
    )


def eager(e: Evidence) -> tuple[Finding, ...]:
    """No CUDA graphs where they were asked for."""
    asked = e.setting("cuda_graph_decode")
    if not e.journal or asked == "disabled" or (e.setting("device") == "cpu" and asked is None):
        return ()
    without, with_graphs = e.journal.eager_windows, e.journal.graph_windows
    if not without or with_graphs >= without:
        return ()
    return (
        Finding(
            "eager-mode",
            "decoding runs without CUDA graphs",
            Severity.SLOW,
            Confidence.CERTAIN,
            "graphs were asked for, and the engine launches each kernel from Python: a batch larger than the "
            "captured ones, a backend that cannot be captured, or the CPU, which has no graphs",
            "see what the start says of graphs and captured batch sizes",
            f"kdops logs {e.host} --grep '[Gg]raph'",
            (
                f"{without} of {without + with_graphs} decode lines without a graph",
                f"asked: {asked or 'the default'}",
            ),
        ),
    )


def fallback(e: Evidence) -> tuple[Finding, ...]:
    """Steps that verify a tree and commit one token."""
    c = e.counters
    if not c or not c.steps or sum(c.fallbacks.values()) < _FALLBACK * c.steps:
        return ()
    reasons = ", ".join(f"{name} {steps:,}" for name, steps in sorted(c.fallbacks.items()) if steps)
    return (
        Finding(
            "fallback-active",
            "steps fall back to one token",
            Severity.SLOW,
            Confidence.CERTAIN,
            "such a step verifies a tree and commits one token: requests with penalties or a grammar that a "
            "tree cannot honour, or a budget chosen as 1",
            "send requests without penalties where speed matters, or serve those by another profile",
            f"kdops bench {e.host}",
            (f"{sum(c.fallbacks.values()) / c.steps:.0%} of {c.steps:,} steps: {reasons}",),
        ),
    )


def _same(asked: Any, runs: Any) -> bool:
    if isinstance(asked, float | int) and isinstance(runs, float | int):
        return math.isclose(float(asked), float(runs), rel_tol=1e-6)
    return str(asked) == str(runs)
