"""Pins: what compat knows about SGLang by name. Each fails when the pinned SGLang moves."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import fields

import pytest
from kdtree_engine.options import DECODE_GRAPHS
from kdtree_engine.sglang import compat, redaction


def parameters(function: object) -> list[str]:
    return list(inspect.signature(function).parameters)  # type: ignore[arg-type]


def test_the_installed_version_is_the_supported_one() -> None:
    assert compat.version_problem() is None


@pytest.mark.parametrize("target", [*compat.PLUGIN_HOOKS, compat.KILL_PROCESS_TREE, compat.SIGTERM_HANDLER])
def test_hook_targets_exist(target: str) -> None:
    assert callable(pkgutil.resolve_name(target))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (compat.CONFIGURE_LOGGER, ["server_args", "prefix"]),
        (compat.KILL_PROCESS_TREE, ["parent_pid", "include_parent", "skip_pid", "wait_timeout"]),
        (compat.VERIFY_DONE, ["self", "num_correct_drafts_per_req", "batch_size"]),
    ],
)
def test_hooked_functions_take_what_the_hooks_expect(target: str, expected: list[str]) -> None:
    assert parameters(pkgutil.resolve_name(target)) == expected


def test_runtime_names_exist() -> None:
    from kdtree_engine.sglang.compat import runtime

    assert all(getattr(runtime, name) is not None for name in runtime.__all__)


def test_the_base_worker_has_what_the_tree_worker_uses() -> None:
    from kdtree_engine.sglang.compat import runtime

    source = inspect.getsource(runtime.DFlashWorkerV2)
    for name in (
        "_block_pos_offsets",
        "_compute_compact_draft_seq_lens",
        "_draft_block_spec_info",
        "_draft_seq_lens_cpu_buf",
        "_draft_write_ids",
        "_ensure_draft_block_buffers",
        "_fill_compact_seq_lens_cpu_bound",
        "_full_embed_gpu",
        "_is_domino",
        "_make_next_draft_input_decode",
        "_mask_token_id",
        "_maybe_build_draft_sampler",
        "_can_skip_verify_logits",
        "_defer_target_verify_gather",
        "_noise_embed_scale",
        "_rebuild_compact_draft_cache",
        "_tp_sync",
        "_validate_phase1_sampling_support",
        "draft_parallel_layout",
        "lilicorr",
        "selector",
        "use_compact_draft_cache",
    ):
        assert name in source
    assert parameters(runtime.DFlashWorkerV2.forward_batch_generation) == [
        "self",
        "batch",
        "on_publish",
        "grammar_barrier",
        "pp_proxy_tensors",
    ]
    assert parameters(runtime.DFlashWorkerV2._append_target_hidden_to_draft_kv_by_loc) == [
        "self",
        "target_hidden",
        "cache_loc",
        "positions",
        "cache_loc_2d",
        "commit_lens",
        "extend_lens",
    ]


def test_verify_input_and_result_take_the_trees_fields() -> None:
    from kdtree_engine.sglang.compat import runtime

    assert {"draft_token", "positions", "draft_token_num", "topk", "custom_mask", "kv_loc_plan"} <= {
        field.name for field in fields(runtime.DFlashVerifyInput)
    }
    assert {
        "accept_lens",
        "new_seq_lens",
        "speculative_num_draft_tokens",
        "speculative_output_stride",
        "next_draft_input",
    } <= {field.name for field in fields(runtime.GenerationBatchResult)}


def test_the_launchers_names_exist() -> None:
    from kdtree_engine.sglang.compat import server

    assert "launch_callback" in parameters(server.http_server.launch_server)
    manager = pkgutil.resolve_name("sglang.srt.managers.tokenizer_manager.TokenizerManager")
    source = inspect.getsource(manager)
    for name in ("rid_to_state", "gracefully_exit", "self.event_loop", "async def sigterm_watchdog"):
        assert name in source


def test_the_scheduler_has_the_load_that_telemetry_reads() -> None:
    source = inspect.getsource(pkgutil.resolve_name("sglang.srt.managers.scheduler.Scheduler"))
    assert "self.waiting_queue" in source
    assert "self.running_batch" in source


def test_settings_that_sound_secret_are_all_decided() -> None:
    """A setting new in SGLang that sounds like a secret must be looked at: hidden, or listed as harmless."""
    names = pkgutil.resolve_name("sglang.srt.server_args.ServerArgs").__struct_fields__
    sound = {name for name in names if redaction.redact({name: "text"})[name] == redaction.REDACTED}
    assert sound == {
        "admin_api_key",
        "api_key",
        "kt_max_deferred_experts_per_token",
        "prefill_delayer_token_usage_low_watermark",
        "ssl_keyfile_password",
        "tbo_token_distribution_threshold",
        "watermark_key",
        "watermark_key_b",
    }
    assert set(names) >= redaction.HARMLESS


def test_registered_algorithm_answers_everything_sglang_asks() -> None:
    from kdtree_engine.sglang import registration
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import get_spec

    if get_spec("DDTREE") is None:
        registration.register_algorithm()
    algorithm = get_spec("DDTREE")
    missing = [
        name
        for name, value in vars(SpeculativeAlgorithm).items()
        if inspect.isfunction(value) and not name.startswith("_") and not hasattr(algorithm, name)
    ]
    assert missing == ["get_platform_worker_cls"]
    assert algorithm.is_dflash_family()


def test_the_triton_backend_keeps_the_mask_where_the_tree_is_written() -> None:
    """Captured graphs read the backend's own buffer; the cells over the prefix are never read."""
    backend = pkgutil.resolve_name("sglang.srt.layers.attention.triton_backend.TritonAttnBackend")
    replayed = inspect.getsource(backend._update_target_verify_buffers)
    assert "custom_mask[: spec_info.custom_mask.shape[0]] = spec_info.custom_mask" in replayed
    assert "seq_mask_len = num_tokens_per_req * (seq_lens + num_tokens_per_req)" in replayed
    captured = inspect.getsource(backend._build_cuda_graph_forward_metadata)
    assert "spec_info.custom_mask is not None" in captured
    assert "custom_mask=custom_mask" in captured
    kernel = inspect.getsource(pkgutil.resolve_name("sglang.kernels.ops.attention.extend_attention"))
    assert "skip_prefix_custom_mask=True" in kernel


def test_the_graph_runner_calls_the_hooks_with_what_they_take() -> None:
    runner = pkgutil.resolve_name(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner"
    )
    source = inspect.getsource(runner.capture_one_shape)
    assert "capture_hook(self, forward_batch)" in source
    assert "capture_hook(self, out, forward_batch, num_tokens)" in source
    assert parameters(runner.get_spec_info) == ["self", "num_tokens"]


def test_widths_are_captured_as_adaptive_eagle_captures_its_own() -> None:
    from kdtree_engine.sglang.compat import runtime

    assert {"attn_backend", "speculative_num_steps", "speculative_num_draft_tokens"} <= set(
        parameters(runtime.DecodeCudaGraphRunner.__init__)
    )
    runner = pkgutil.resolve_name("sglang.srt.model_executor.model_runner.ModelRunner")
    assert parameters(runner._get_attention_backend) == ["self", "init_new_workspace"]
    assert "self.init_new_workspace" in inspect.getsource(runner.__init__)
    source = inspect.getsource(runtime.DecodeCudaGraphRunner.__init__)
    assert "self.capture_forward_mode = ForwardMode.TARGET_VERIFY" in source
    assert "self.captured_req_width" in source


def test_a_verify_steps_counters_lie_where_plain_steps_are_taken_out() -> None:
    source = inspect.getsource(pkgutil.resolve_name(compat.RESOLVE_TOKENS))
    assert "req.spec_verify_ct += 1" in source
    assert "if req.is_retracted or req.finished():" in source
    request = pkgutil.resolve_name("sglang.srt.managers.schedule_batch.Req")
    counted = inspect.getsource(request.update_spec_correct_drafts_histogram)
    assert "self.spec_correct_drafts_histogram[num_correct_drafts] += 1" in counted
    streamed = pkgutil.resolve_name("sglang.srt.managers.scheduler_components.output_streamer")
    assert "append(req.spec_num_block_accept_tokens)" in inspect.getsource(streamed)
    told = pkgutil.resolve_name(compat.REQUEST_METRICS)
    assert parameters(told) == ["self", "meta_info", "recv_obj", "i"]
    assert "_ragged_verify_cap_accept()\n" in inspect.getsource(told)


def test_an_eager_verify_is_planned_anew_from_its_spec_info() -> None:
    runner = pkgutil.resolve_name("sglang.srt.model_executor.runner.eager_runner.EagerRunner")
    source = inspect.getsource(runner._execute_extend)
    assert "or forward_batch.forward_mode.is_target_verify()" in source
    assert "attn_backend.init_forward_metadata(forward_batch)" in source


def test_decode_graphs_are_named_as_registration_reads_them() -> None:
    backend = pkgutil.resolve_name("sglang.srt.model_executor.cuda_graph_config.Backend")
    assert set(DECODE_GRAPHS) == set(backend.ALL) - {"breakable"}


def test_settings_that_registration_reads_exist() -> None:
    names = pkgutil.resolve_name("sglang.srt.server_args.ServerArgs").__struct_fields__
    assert {
        "attention_backend",
        "decode_attention_backend",
        "prefill_attention_backend",
        "enable_deterministic_inference",
        "attn_dp_size",
        "cuda_graph_config",
        "enable_metrics",
        "max_running_requests",
    } <= set(names)


def test_a_group_of_ranks_names_its_first_and_its_connection_between_processors() -> None:
    group = pkgutil.resolve_name("sglang.srt.distributed.parallel_state.GroupCoordinator")
    assert isinstance(group.first_rank, property)
    assert "self.cpu_group = cpu_group" in inspect.getsource(group.__init__)


def test_penalties_lie_where_the_verify_step_reads_them() -> None:
    info = pkgutil.resolve_name("sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo")
    names = {field.name for field in fields(info)}
    assert {
        "acc_additive_penalties",
        "acc_scaling_penalties",
        "logit_bias",
        "penalizer_orchestrator",
    } <= names
    draft = pkgutil.resolve_name(compat.PREPARE_DECODE)
    assert parameters(draft) == ["self", "batch"]
    assert "penal" not in inspect.getsource(draft)  # else tokens would be counted twice
