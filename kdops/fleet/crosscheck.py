"""Settings that are each right and together wrong: found here in a second, there after the whole load."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

from kdops.fleet import ddtree, facts, fitting, pair, sglang_options
from kdops.fleet.memory import MIN_RESERVE, predict
from kdops.fleet.model import Host, Origin
from kdops.fleet.problems import Problem
from kdops.fleet.settings import PLAIN, TREE, EngineConfig
from kdops.loose import positive

_PAGES = {"flashmla": (64,), "trtllm_mla": (32, 64), "trtllm_mha": (16, 32, 64, 128)}
"""Page sizes an attention backend can use; SGLang 0.5.23 changes any other with a warning (overrides.py). Not
listed: any.
"""

_LAYOUT = ("base_gpu_id", "gpu_id_step", "nnodes", "dp_size")
"""SGLang's options that give the ranks other GPUs than the first of this host, one each."""

_HEAD_GROUPS = ("dp_size", "attn_dp_size", "attn_cp_size")
"""SGLang's options that give a rank more heads than a tp-th of them."""

_ARCHITECTURES = {"fa3": (80, 90), "flashmla": (90, 119), "trtllm_mla": (100, 129), "trtllm_mha": (90, 129)}
"""Lowest and highest compute capability × 10 a backend runs on (SGLang 0.5.23 refuses others; flashmla has no
CUDA kernel from sm_120 on: kernels/ops/attention/flash_mla_sm120.py, which flashmla_backend.py does not use).
"""

_FA4_MLA = (100, 119)
"""The same of fa4 where the model has MLA: kernels/ops/attention/flash_attn/cute/interface.py, "only support
Blackwell arch with qv". With other heads fa4 has kernels for sm_120 too (fa4_sm120).
"""


def contradictions(config: EngineConfig, host: Host) -> list[Problem]:
    """Return every contradiction between settings, and between them, the host and the models where those are
    known.
    """
    found = [*_hardware(config, host), *_backends(config, host), *_speculative(config), *_options(config)]
    problems = [_problem(config, key, text) for key, text in found]
    return problems + list(_model(config, host))


def _problem(config: EngineConfig, key: str, text: str) -> Problem:
    return Problem(config.origins[key], f"engine_{key}: {text}", settable=True)


def _hardware(config: EngineConfig, host: Host) -> Iterator[tuple[str, str]]:
    if config.device == "cpu" and config.lock != "cpu":
        yield "lock", "the CPU engine has its own environment; engine_lock must be cpu with engine_device cpu"
    if config.device == "cuda" and config.lock == "cpu":
        yield "lock", "the CPU environment cannot use a GPU; engine_lock must be cuda with engine_device cuda"
    if config.device == "cuda" and host.gpu.id == "cpu":
        yield "device", "cuda, but the host's gpu is cpu; set gpu to an entry of the catalogue"
    if config.device == "cuda" and config.tp > host.gpu_count:
        yield "tp", f"{config.tp} GPUs are needed and {host.name} has gpu_count {host.gpu_count}"
    yield from _visible(config)


def _visible(config: EngineConfig) -> Iterator[tuple[str, str]]:
    """CUDA_VISIBLE_DEVICES against the ranks; an option that lays them out in another way is not judged."""
    listed = config.environment.get("CUDA_VISIBLE_DEVICES")
    laid_out = (sglang_options.given(config.extra_args, option) for option in _LAYOUT)
    if config.device != "cuda" or listed is None or any(laid_out):
        return
    # CUDA C++ Programming Guide, "CUDA Environment Variables": the list ends before the first invalid entry.
    devices = sum(1 for _ in itertools.takewhile(lambda d: d.strip() not in ("", "-1"), listed.split(",")))
    _, stages = sglang_options.given(config.extra_args, "pp_size") or ("", 1)
    needed = config.tp * (positive(stages) or 1)
    if devices != needed:
        yield "environment", f"CUDA_VISIBLE_DEVICES names {devices} devices, and {needed} are needed"


def _backends(config: EngineConfig, host: Host) -> Iterator[tuple[str, str]]:
    for key in ("attention_backend", "draft_attention_backend"):
        backend = getattr(config, key)
        if backend is None or (key.startswith("draft") and config.algorithm == PLAIN):
            continue
        if config.device == "cpu" and backend != "torch_native":
            yield key, f"{backend} needs a GPU; on the CPU: torch_native"
        low, high = _ARCHITECTURES.get(backend, (0, 999))
        if config.device == "cuda" and not low <= host.gpu.sm <= high:
            yield key, f"{backend} has no kernels for {host.gpu.name} (sm_{host.gpu.sm}); triton has"
    pages = _PAGES.get(config.attention_backend or "")
    if pages and config.page_size not in pages:
        sizes = " or ".join(map(str, pages))
        yield "page_size", f"{config.page_size}, but {config.attention_backend} needs pages of {sizes}"


def _speculative(config: EngineConfig) -> Iterator[tuple[str, str]]:
    if config.algorithm == PLAIN:
        return
    block = f"engine_block_size = {config.block_size}"
    if config.draft_model is None:
        yield "draft_model", f"profile {config.profile!r} drafts ({config.algorithm}) and needs a draft model"
    if config.draft_window is not None and config.draft_window < config.block_size:
        text = f"{config.draft_window} is below {block}: the drafter could not see its own block"
        yield "draft_window", text
    for attribute in ("pp_size", "attn_dp_size", "dp_size"):
        option, value = sglang_options.given(config.extra_args, attribute) or (attribute, 1)
        if value not in (1, "1"):
            yield "extra_args", f"{option} {value}: {config.algorithm} works with 1 only"
    if config.algorithm == TREE:
        yield from ddtree.contradictions(config)


def _options(config: EngineConfig) -> Iterator[tuple[str, str]]:
    if config.extra_args:
        for text in sglang_options.wrong(config.extra_args, sglang_options.shipped()):
            yield "extra_args", text


def _model(config: EngineConfig, host: Host) -> Iterator[Problem]:
    read: dict[str, facts.ModelFacts | None] = {}
    raw: dict[str, facts.Document | None] = {}
    for variable in ("engine_model_facts", "engine_draft_facts"):
        try:
            read[variable] = facts.known(host, config, variable)
            raw[variable] = facts.document(host, config, variable)
        except ValueError as error:
            yield Problem(host.origins.get(variable, Origin(str(host.inventory))), f"{variable}: {error}")
            return
    target = read["engine_model_facts"]
    draft = read["engine_draft_facts"] if config.algorithm != PLAIN else None
    one, other = raw["engine_model_facts"], raw["engine_draft_facts"]
    if one and other and config.algorithm != PLAIN:
        for text in pair.mismatches(one.config, other.config):
            yield _problem(config, "draft_model", f"the drafter does not fit the target: {text}")
    if target:
        for text in _heads(config, host, mla=not target.kv_heads):
            yield _problem(config, "attention_backend", text)
    for text in _split(config, target, draft):
        yield _problem(config, "tp", text)
    context = config.context_length or (target.positions if target else None)
    for key, text in _limits(config, context, target, draft):
        yield _problem(config, key, text)
    if target:
        yield from _memory(config, context, host, target, draft)


def _heads(config: EngineConfig, host: Host, *, mla: bool) -> Iterator[str]:
    """What SGLang 0.5.23 refuses in layers/attention/attention_registry.py, and in fa4's kernels."""
    if config.attention_backend == "trtllm_mha" and mla:
        yield "trtllm_mha is not for MLA, which the model has"
    if config.attention_backend == "trtllm_mla" and not mla:
        yield "trtllm_mla is for MLA only, which the model does not have"
    if config.attention_backend == "fa4" and mla and not _FA4_MLA[0] <= host.gpu.sm <= _FA4_MLA[1]:
        yield f"fa4 has no kernels for MLA on {host.gpu.name} (sm_{host.gpu.sm}); triton has"


def _split(
    config: EngineConfig, target: facts.ModelFacts | None, draft: facts.ModelFacts | None
) -> Iterator[str]:
    """Heads that tp does not divide. SGLang 0.5.23 pads them on the CPU (configs/update_config.py), and data
    or context parallelism splits them among fewer ranks: neither is judged.
    """
    others = (sglang_options.given(config.extra_args, option) for option in _HEAD_GROUPS)
    if config.device != "cuda" or any(others):
        return
    for model, read in (("target", target), ("drafter", draft)):
        if read and read.heads and read.heads % config.tp:
            yield f"{config.tp} does not divide the {read.heads} attention heads of the {model}"


def _limits(
    config: EngineConfig, context: int | None, target: facts.ModelFacts | None, draft: facts.ModelFacts | None
) -> Iterator[tuple[str, str]]:
    if draft and draft.block_size and draft.block_size != config.block_size:
        yield "block_size", f"{config.block_size}, but the drafter was trained with {draft.block_size}"
    if context and target and target.positions and context > target.positions:
        yield "context_length", f"{context}, but the model knows {target.positions} positions"
    if context and draft and draft.positions and draft.positions < context and config.draft_window is None:
        text = f"not set, and the drafter knows {draft.positions} positions of {context}; set a window"
        yield "draft_window", text


def _memory(
    config: EngineConfig,
    context: int | None,
    host: Host,
    target: facts.ModelFacts,
    draft: facts.ModelFacts | None,
) -> Iterator[Problem]:
    def problem(key: str, text: str, enough: tuple[str, ...] | None = None) -> Problem:
        return dataclasses.replace(_problem(config, key, text), memory=True, enough=enough)

    prediction = predict(config, host.gpu, target, draft)
    tokens, reserve = prediction.tokens, prediction.reserve_bytes
    if prediction.pool_bytes == 0:
        weights, total = (prediction.weight_bytes or 0) / 1e9, host.gpu.memory / 1e9
        text = f"the weights alone take {weights:.1f} GB of each GPU's {total:.1f} GB"
        yield problem("memory_fraction", f"{config.memory_fraction:g} leaves no KV pool: {text}")
    elif tokens is not None and context and context > tokens:
        free = predict(dataclasses.replace(config, max_total_tokens=None), host.gpu, target, draft).tokens
        capped = config.max_total_tokens is not None and (free is None or free > tokens)
        key = "context_length" if config.context_length else "memory_fraction"
        text = f"{context} tokens a request, but the KV pool is predicted to hold {tokens}"
        enough = fitting.changes(config, host.gpu, host.gpu_count, target, draft, context)
        yield problem("max_total_tokens" if capped else key, text, enough)
    if reserve is not None and reserve < MIN_RESERVE:
        left = f"{max(0, reserve) / 1e9:.1f} GB of each GPU for activations and CUDA graphs"
        least = f"which take {MIN_RESERVE / 1e9:.1f} GB or more"
        yield problem("memory_fraction", f"{config.memory_fraction:g} leaves {left}, {least}")
