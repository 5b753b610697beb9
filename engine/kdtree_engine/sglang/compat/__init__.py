"""The only place that knows SGLang 0.5.23 by its inner names (tests/inside/test_compat.py fails when one
moves).

This half is light: names to hook and what registration needs. `compat.runtime` imports the parts that a
running scheduler needs.
"""

from __future__ import annotations

import contextlib
import json
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kdtree_engine.pair import Drafter, Target

SUPPORTED = "0.5.23"
KILL_SECONDS = 10.0
TITLE = "sglang::"  # how SGLang's processes name themselves

# Functions that are wrapped through SGLang's own HookRegistry.
ADD_CLI_ARGS = "sglang.srt.server_args.ServerArgs.add_cli_args"
FROM_CLI_ARGS = "sglang.srt.server_args.ServerArgs.from_cli_args"
RESOLVED_DICT = "sglang.srt.server_args.ServerArgs.resolved_dict"
CONFIGURE_LOGGER = "sglang.srt.utils.common.configure_logger"
LOAD_WEIGHTS = "sglang.srt.managers.scheduler.Scheduler.init_tp_model_worker"
ALLOCATE_POOLS = "sglang.srt.managers.scheduler.Scheduler.init_memory_pools"
CAPTURE_GRAPHS = "sglang.srt.managers.scheduler.Scheduler.init_all_cuda_graphs"
LOOP_TURN = "sglang.srt.managers.scheduler.Scheduler.ingest_requests"
RUN_BATCH = "sglang.srt.managers.scheduler.Scheduler.run_batch"
ATTENTION = "sglang.srt.layers.attention.base_attn_backend.AttentionBackend.forward"
TRITON_BACKEND = "sglang.srt.layers.attention.triton_backend.TritonAttnBackend.__init__"
VERIFY_DONE = "sglang.srt.speculative.base_spec_worker.BaseSpecWorker.on_verify_complete_cpu"
GRAPH_SPEC_INFO = (
    "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner.get_spec_info"
)
RESOLVE_TOKENS = (
    "sglang.srt.managers.scheduler_components.batch_result_processor"
    ".SchedulerBatchResultProcessor._resolve_spec_v2_tokens"
)
REQUEST_METRICS = "sglang.srt.managers.tokenizer_manager.TokenizerManager._calculate_spec_decoding_metrics"
PREPARE_DECODE = "sglang.srt.speculative.dflash_info_v2.DFlashDraftInputV2.prepare_for_decode"
KILL_PROCESS_TREE = "sglang.srt.utils.common.kill_process_tree"
SIGTERM_HANDLER = "sglang.srt.managers.tokenizer_manager.SignalHandler.sigterm_handler"

PLUGIN_HOOKS = (
    ADD_CLI_ARGS,
    FROM_CLI_ARGS,
    RESOLVED_DICT,
    CONFIGURE_LOGGER,
    LOAD_WEIGHTS,
    ALLOCATE_POOLS,
    CAPTURE_GRAPHS,
    LOOP_TURN,
    RUN_BATCH,
    ATTENTION,
    VERIFY_DONE,
    GRAPH_SPEC_INFO,
    RESOLVE_TOKENS,
    REQUEST_METRICS,
    PREPARE_DECODE,
)


def installed_version() -> str | None:
    """SGLang's version from its metadata, without importing it; None when it is not installed."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return None


def version_problem() -> str | None:
    """One sentence when the installed SGLang is not the supported one."""
    found = installed_version()
    if found == SUPPORTED:
        return None
    return f"kdtree-engine is made for SGLang {SUPPORTED}; installed is {found or 'none'}"


def missing_registrations(algorithm: str) -> tuple[str, ...]:
    """What a half-loaded plugin lacks in this process: the algorithm's name, the hooks that did not apply."""
    from sglang.srt.plugins.hook_registry import HookRegistry
    from sglang.srt.speculative.spec_registry import get_spec

    missing = [target for target in PLUGIN_HOOKS if target not in HookRegistry._patched]
    return tuple(missing if get_spec(algorithm) else [algorithm, *missing])


def drafter_facts(args: Any) -> Drafter:
    """What the drafter's own config names. Raises OSError or ValueError when it has none."""
    from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config
    from sglang.srt.utils.hf_transformers_utils import get_config

    config = get_config(args.speculative_draft_model_path, trust_remote_code=args.trust_remote_code)
    own = parse_dflash_draft_config(draft_hf_config=config)
    return Drafter(
        block_size=own.resolve_block_size(default=None),
        vocabulary=getattr(config, "vocab_size", None),
        hidden_size=getattr(config, "hidden_size", None),
        positions=getattr(config, "max_position_embeddings", None),
        trained_on=own.num_target_layers,
        features=tuple(own.target_layer_ids or ()),
    )


def target_facts(args: Any) -> Target:
    """What the target's config names, as ModelConfig reads it. Raises OSError or ValueError without one."""
    from sglang.srt.utils.hf_transformers_utils import get_config, get_context_length, get_hf_text_config

    config = get_config(
        args.model_path,
        trust_remote_code=args.trust_remote_code,
        revision=args.revision,
        model_override_args=json.loads(args.json_model_override_args),
    )
    text = get_hf_text_config(config)
    return Target(
        vocabulary=getattr(text, "vocab_size", None),
        hidden_size=getattr(text, "hidden_size", None),
        layers=getattr(text, "num_hidden_layers", None),
        context=args.context_length or get_context_length(text),
    )


def attention_backends(server_args: Any) -> set[str | None]:
    """The backends that this (resolving) configuration gives to the target's forwards."""
    chosen = (server_args.decode_attention_backend, server_args.prefill_attention_backend)
    return {server_args.attention_backend if backend is None else backend for backend in chosen}


def decode_graph_backend(server_args: Any) -> str:
    """How this (resolving) configuration captures decode graphs: full, breakable, disabled."""
    return str(server_args.cuda_graph_config.decode.backend)


def captured_batch_sizes() -> list[int]:
    """The batch sizes of this process's decode graphs, empty without graphs."""
    from sglang.srt.model_executor.cuda_graph_config import Backend
    from sglang.srt.runtime_context import get_exec

    decode = get_exec().graph.cuda_graph_config.decode
    return [] if decode.backend == Backend.DISABLED else list(decode.bs or ())


def leads() -> bool:
    """Whether this scheduler process is the first of its server."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    return parallel.tp_rank == 0 and not parallel.dp_rank


def load(scheduler: Any) -> tuple[int, int]:
    """Running and queued requests of a scheduler."""
    return len(scheduler.running_batch.reqs), len(scheduler.waiting_queue)


def child_titles() -> dict[int, str]:
    """SGLang's processes under this one by pid: `scheduler_TP1`, `detokenizer`, ..."""
    import psutil

    found = {}
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error, IndexError):
            found[child.pid] = child.cmdline()[0].strip()
    return {pid: title.removeprefix(TITLE) for pid, title in found.items() if title.startswith(TITLE)}


def ended(titles: dict[int, str]) -> list[str]:
    """Those of `child_titles` that do not run any more, and how each ended (waitid(2)).

    Those that a signal ended come first: when a rank is lost the others end with an error a moment later.
    """
    signalled, others = [], []
    for pid, title in titles.items():
        try:
            status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # SGLang has already taken its status
            others.append(title)
            continue
        if status is None:
            continue
        if status.si_code == os.CLD_EXITED:
            others.append(f"{title} (exit {status.si_status})")
        else:
            signalled.append(f"{title} (signal {status.si_status})")
    return signalled + others


def kill_children() -> None:
    """Kill every process below this one and wait until they are gone."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=KILL_SECONDS)
