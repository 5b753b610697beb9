"""The SGLang plugin (entry point group `sglang.srt.plugins`, name `kdtree`): SGLang calls `register` in
every process.
"""

from __future__ import annotations

import os

from kdtree_engine.options import RefusedError


def register() -> None:
    """Register DDTREE, its flags, the launcher's telemetry and the redaction.

    Raises RefusedError for another SGLang.
    """
    from kdtree_engine.sglang import compat

    problem = compat.version_problem()
    if problem:
        raise RefusedError(problem)

    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from kdtree_engine.sglang import attention, penalties, plain, redaction, registration, telemetry, treemask

    registration.register_algorithm()
    around, before, after = HookType.AROUND, HookType.BEFORE, HookType.AFTER
    for target, hook, kind in (
        (compat.ADD_CLI_ARGS, registration.add_cli_args, around),
        (compat.FROM_CLI_ARGS, registration.from_cli_args, around),
        (compat.RESOLVED_DICT, registration.resolved_dict, after),
        (compat.CONFIGURE_LOGGER, redaction.filter_logs, after),
        (compat.LOAD_WEIGHTS, telemetry.loading_weights, before),
        (compat.ALLOCATE_POOLS, telemetry.allocating_pools, before),
        (compat.CAPTURE_GRAPHS, telemetry.capturing_graphs, before),
        (compat.CAPTURE_GRAPHS, telemetry.warming_up, after),
        (compat.LOOP_TURN, telemetry.loop_turn, before),
        (compat.RUN_BATCH, telemetry.forward_moves, before),
        (compat.ATTENTION, telemetry.forward_moves, before),
        (compat.VERIFY_DONE, telemetry.verify_done, before),
        (compat.GRAPH_SPEC_INFO, treemask.capture_with_mask, after),
        (compat.RESOLVE_TOKENS, plain.uncount, after),
        (compat.REQUEST_METRICS, plain.report, after),
        (compat.PREPARE_DECODE, penalties.count_last_token, before),
    ):
        HookRegistry.register(target, hook, kind)
    if attention.wanted(os.environ):
        HookRegistry.register(compat.TRITON_BACKEND, attention.fill_slots, after)
