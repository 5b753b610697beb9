"""The one table of engine settings: every `engine_*` key, its type, flag, range and what a change costs.

The dataclass below *is* the table: validation, launch.yaml, engine.env, `kdops config` and the comparison
with `/server_info` are all read from its fields. Flags are those of SGLang 0.5.23 (`python -m
sglang.launch_server --help`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from kdops.fleet.model import Origin


class Effect(StrEnum):
    """What has to happen on the host before a changed value counts."""

    NOTHING = "nothing"
    RESTART = "restart"
    REDEPLOY = "redeploy"


PLAIN, LINEAR, TREE = "autoregressive", "DFLASH", "DDTREE"
_ALL = frozenset({PLAIN, LINEAR, TREE})
_SPECULATIVE = frozenset({LINEAR, TREE})
_TREE = frozenset({TREE})


@dataclass(frozen=True)
class Setting:
    """One row. flag: SGLang option; env: variable of the launcher; at neither: the unit or kdops itself.

    low/high are inclusive unless `exclusive`; pattern is a full match; address: an IP address or a host name;
    reported: key of `/server_info`, if it
    is told there. algorithms: those for which the flag is written at all. A default of REQUIRED must be set
    by the inventory.
    """

    doc: str
    flag: str | None = None
    env: str | None = None
    effect: Effect = Effect.RESTART
    low: float | None = None
    high: float | None = None
    exclusive: bool = False
    pattern: str | None = None
    address: bool = False
    algorithms: frozenset[str] = _ALL
    reported: str | None = None


class _Required:
    def __repr__(self) -> str:
        return "(must be set)"


REQUIRED: Any = _Required()

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
"""Names that become part of paths and unit names: services, profiles."""

_USER = r"[a-z_][a-z0-9_-]{0,30}"
_PLAIN_TEXT = r"(?!-)[^\x00-\x1f\x7f-\x9f]+"
_ADDRESS = r"[0-9A-Za-z.:_-]+"


def _row(default: Any, doc: str, flag: str | None = None, **rest: Any) -> Any:
    if flag and "reported" not in rest:
        rest["reported"] = flag.removeprefix("--").replace("-", "_")
    metadata = {"setting": Setting(doc=doc, flag=flag, **rest)}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """The validated settings of one host under one profile. Field `x` is the inventory variable `engine_x`.

    `origins` maps each field name to where its value was written.
    """

    profile: str
    origins: Mapping[str, Origin]

    algorithm: Literal["autoregressive", "DFLASH", "DDTREE"] = _row(
        REQUIRED,
        "Decoding: plain, a linear DFlash chain, or a DDTree; profiles set it",
        "--speculative-algorithm",
    )
    service: str = _row(
        REQUIRED,
        "Service NAME of unit kdtree-NAME.service; the host name unless set",
        effect=Effect.REDEPLOY,
        pattern=NAME,
    )
    model: str = _row(
        REQUIRED,
        "Target model: a folder on the host or a Hugging Face id",
        "--model-path",
        pattern=_PLAIN_TEXT,
    )
    served_model_name: str | None = _row(
        None, "Name under which /v1/models offers the model", "--served-model-name", pattern=_PLAIN_TEXT
    )
    trust_remote_code: bool = _row(
        False, "Run the model code that comes with the checkpoint", "--trust-remote-code"
    )
    tp: int = _row(1, "Tensor parallelism: GPUs that share one model", "--tp-size", low=1, high=64)
    device: Literal["cuda", "cpu"] = _row("cuda", "What the engine runs on", "--device")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = _row(
        "auto", "Type of weights and activations", "--dtype"
    )
    bind: str = _row(
        "127.0.0.1",
        "Address to listen on; kdops itself comes through SSH",
        "--host",
        pattern=_ADDRESS,
        address=True,
    )
    port: int = _row(30000, "TCP port to listen on", "--port", low=1, high=65535)

    memory_fraction: float = _row(
        0.85,
        "Share of GPU memory for weights and KV pool",
        "--mem-fraction-static",
        low=0,
        high=1,
        exclusive=True,
    )
    max_total_tokens: int | None = _row(
        None, "Tokens in the KV pool; from the memory fraction unless set", "--max-total-tokens", low=1
    )
    page_size: int = _row(1, "Tokens in a KV page", "--page-size", low=1, high=256)
    context_length: int | None = _row(
        None, "Longest request in tokens; the model's own unless set", "--context-length", low=1
    )
    kv_cache_dtype: Literal["auto", "bf16", "bfloat16", "fp8_e5m2", "fp8_e4m3"] = _row(
        "auto", "Type of the KV cache", "--kv-cache-dtype"
    )
    chunked_prefill: int | None = _row(
        None, "Tokens of a prompt computed at once; -1 turns chunking off", "--chunked-prefill-size", low=-1
    )
    max_running_requests: int | None = _row(
        None,
        "Requests decoded together at most; unset, 48 with a drafter and as memory allows without",
        "--max-running-requests",
        low=1,
        high=4096,
    )
    attention_backend: (
        Literal[
            "triton",
            "torch_native",
            "flashinfer",
            "fa3",
            "fa4",
            "flashmla",
            "trtllm_mla",
            "trtllm_mha",
        ]
        | None
    ) = _row(None, "Attention kernels of the target", "--attention-backend")
    sampling_backend: Literal["flashinfer", "pytorch"] | None = _row(
        None, "Sampling kernels", "--sampling-backend"
    )
    cuda_graph_decode: Literal["full", "breakable", "disabled"] | None = _row(
        None, "CUDA graphs while decoding", "--cuda-graph-backend-decode", reported=None
    )
    reasoning_parser: str | None = _row(
        None, "Splits reasoning from the answer", "--reasoning-parser", pattern=NAME
    )
    tool_call_parser: str | None = _row(None, "Reads tool calls", "--tool-call-parser", pattern=NAME)
    decode_log_interval: int = _row(
        40, "Decode steps between two log lines", "--decode-log-interval", low=1, high=100_000
    )
    enable_metrics: bool = _row(True, "Serve Prometheus counters at /metrics", "--enable-metrics")

    draft_model: str | None = _row(
        None,
        "Draft model of DFLASH and DDTREE",
        "--speculative-draft-model-path",
        algorithms=_SPECULATIVE,
        pattern=_PLAIN_TEXT,
    )
    draft_attention_backend: Literal["triton", "torch_native", "flashinfer", "fa3", "fa4"] | None = _row(
        None,
        "Attention kernels of the drafter; must be able to run it",
        "--speculative-draft-attention-backend",
        algorithms=_SPECULATIVE,
    )
    block_size: int = _row(
        8,
        "Tokens the drafter proposes at once, first one included; the checkpoint's own",
        "--speculative-dflash-block-size",
        algorithms=_SPECULATIVE,
        low=2,
        high=64,
    )
    draft_window: int | None = _row(
        None,
        "Tokens the drafter looks back; everything unless set",
        "--speculative-draft-window-size",
        algorithms=_SPECULATIVE,
        low=1,
    )
    tree_budget: int | Literal["auto"] = _row(
        32,
        "Rows verified in a step, root included; auto: chosen per batch, 1 (plain decoding) to 4 blocks",
        "--ddtree-budget",
        algorithms=_TREE,
        low=1,
        high=256,
        reported="ddtree_budget",
    )
    topk_cap: int = _row(
        4,
        "Candidates kept at each depth of the tree",
        "--ddtree-topk-cap",
        algorithms=_TREE,
        low=1,
        high=64,
        reported=None,
    )
    keep_spine: bool = _row(
        False,
        "Take the whole chain of best candidates first, then branch",
        "--ddtree-keep-spine",
        algorithms=_TREE,
        reported=None,
    )
    verify_attention: Literal["stock", "kdtree"] = _row(
        "stock",
        "Attention of verify steps and plain decoding: SGLang's, or the one split over the KV cache",
        env="KDTREE_VERIFY_ATTENTION",
    )

    user: str = _row("kdtree", "System user the engine runs as", effect=Effect.REDEPLOY, pattern=_USER)
    lock: Literal["cuda", "cpu"] = _row(
        "cuda", "Python environment NAME of engine/locks/NAME.txt", effect=Effect.REDEPLOY
    )
    start_timeout: int = _row(
        1800,
        "Seconds one phase of a start may take before it counts as hung",
        env="KDTREE_PHASE_SECONDS",
        low=10,
        high=86_400,
    )
    drain_timeout: int = _row(
        120, "Seconds a stop waits for running requests", env="KDTREE_DRAIN_SECONDS", low=0, high=86_400
    )
    watchdog: int = _row(
        300,
        "Seconds without any progress after which the engine is restarted; 3× the longest step",
        low=5,
        high=86_400,
    )
    smoke_tokens: int = _row(
        512,
        "Tokens of each of the two generations that prove a deploy; some kernels fail only after hundreds",
        effect=Effect.NOTHING,
        low=1,
        high=100_000,
    )
    smoke_timeout: int = _row(
        600, "Seconds such a generation may take", effect=Effect.NOTHING, low=1, high=86_400
    )
    api_key_file: str | None = _row(
        None,
        "File on this machine with the API key; it reaches the engine as a systemd credential",
        effect=Effect.RESTART,
        pattern=_PLAIN_TEXT,
    )
    environment: Mapping[str, str] = _row({}, "Further environment variables of the engine")
    extra_args: Mapping[str, Any] = _row(
        {}, "Further SGLang options, without dashes: {enable-cache-report: true}"
    )


SETTINGS: Mapping[str, Setting] = {
    f.name: f.metadata["setting"] for f in dataclasses.fields(EngineConfig) if "setting" in f.metadata
}
"""Field name → row, in table order."""


def default(name: str) -> Any:
    """Return the default of the setting `name` (REQUIRED if there is none)."""
    row = next(f for f in dataclasses.fields(EngineConfig) if f.name == name)
    return row.default if row.default_factory is dataclasses.MISSING else row.default_factory()


def address(config: EngineConfig) -> str:
    """Return where the engine answers on its own host: an address for everybody is its loopback there."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.bind, config.bind)


def values(config: EngineConfig) -> dict[str, Any]:
    """Return field name → value of every setting, in table order."""
    return {name: getattr(config, name) for name in SETTINGS}
