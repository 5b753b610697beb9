"""Every rule, in the order in which equals are shown: what makes numbers worthless first."""

from __future__ import annotations

from collections.abc import Callable

from kdops.diagnose.evidence import Evidence
from kdops.diagnose.finding import Finding
from kdops.diagnose.rules import (
    attention,
    consistency,
    draft_context,
    draft_input,
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
    service.stopped,
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
    draft_input.kv_after_prefix_hit,
    draft_context.sliding_window,
    draft_context.beyond_training,
    draft_input.wrong_from_the_start,
    draft_input.other_logits,
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
    service.deploy_failed,
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
    "not-running",
    "unknown-failure",
    "unlike-arms",
    "text-dependent-acceptance",
    "short-burst-flatters",
    "deploy-failed",
    "pool-prediction-off",
    "incomplete-source",
)
"""The findings that the rules can make, beside the failure classes."""
