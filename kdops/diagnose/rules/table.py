"""Every rule, in the order in which equals are shown: what makes numbers worthless first."""

from __future__ import annotations

from collections.abc import Callable

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.finding import Finding
from kdops.diagnose.rules import (
    attention,
    consistency,
    drafter,
    machine,
    measuring,
    service,
    settings,
    speculation,
    tree,
)

Rule = Callable[[Evidence], tuple[Finding, ...]]

RULES: tuple[Rule, ...] = (
    service.failed,
    consistency.not_lossless,
    consistency.broken_invariant,
    consistency.flat_commit,
    machine.foreign_load,
    settings.effective,
    settings.pool_below_context,
    tree.below_chain,
    tree.chain_against_linear,
    consistency.unproven_gain,
    machine.cpu_limited,
    machine.clocks,
    attention.verify_not_split,
    drafter.kv_after_prefix_hit,
    drafter.sliding_window,
    drafter.beyond_training,
    drafter.wrong_from_the_start,
    drafter.other_logits,
    service.outside_history,
    speculation.loses,
    tree.too_wide,
    machine.host_bound,
    settings.eager,
    settings.fallback,
    settings.prefix_cache_off,
    attention.step_time_growth,
    service.restarted,
    tree.unlike_arms,
    measuring.text_dependent,
    measuring.short_burst,
    settings.prediction_off,
    consistency.incomplete_source,
)

IDS: tuple[str, ...] = (
    "not-lossless",
    "broken-invariant",
    "flat-commit",
    "foreign-load",
    "effective-differs",
    "kv-pool-below-context",
    "tree-below-chain",
    "chain-unlike-linear",
    "chain-slower-than-linear",
    "unproven-gain",
    "cpu-limited",
    "clocks-throttled",
    "verify-not-split",
    "slope-above-floor",
    "draft-kv-after-prefix-hit",
    "sliding-window-not-applied",
    "draft-beyond-training",
    "drafter-mismatch",
    "draft-input",
    "verify-other-logits",
    "outside-history",
    "speculation-loses",
    "tree-too-wide",
    "host-bound",
    "eager-mode",
    "fallback-active",
    "prefix-cache-off",
    "step-time-growth",
    "unknown-failure",
    "unlike-arms",
    "text-dependent-acceptance",
    "short-burst-flatters",
    "pool-prediction-off",
    "incomplete-source",
)
"""The findings that the rules can make, beside the failure classes."""
