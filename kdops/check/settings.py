"""The offline rows: settings among themselves, against the models' config.json, the parser, the memory."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from kdops.deploy import key_file
from kdops.errors import UsageError
from kdops.fleet import EngineConfig, Host, facts, pair, sglang_options
from kdops.fleet.crosscheck import contradictions
from kdops.fleet.memory import predict
from kdops.fleet.problems import remedy
from kdops.fleet.settings import PLAIN
from kdops.guard.checks.row import Row, State


def rows(config: EngineConfig, host: Host) -> Iterator[Row]:
    """Return the rows that need no host."""
    found = contradictions(config, host)
    for problem in found:
        enough = ", or ".join(f"--set {change}" for change in problem.enough or ())
        check = "memory model" if problem.memory else "settings"
        yield Row(check, State.FAIL, f"{problem.text} ({problem.origin})", enough or remedy([problem]))
    if not found:
        yield Row("settings", State.OK, f"{config.algorithm}, profile {config.profile}: no contradiction")
    yield from access(config)
    yield from remarks(config, host)
    yield from pool(config, host)


def access(config: EngineConfig) -> Iterator[Row]:
    """Return who may ask the engine, where something is wrong with it."""
    if config.api_key_file:
        try:
            key_file.usable(config.api_key_file)
        except UsageError as error:
            yield Row("access", State.FAIL, error.cause, error.remedy, error.title)
    elif not _loopback(config.bind):
        text = f"engine_bind {config.bind} lets other machines ask the engine, and no key is asked of them"
        yield Row("access", State.WARN, text, "set engine_api_key_file, or engine_bind to 127.0.0.1")


def _loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def remarks(config: EngineConfig, host: Host) -> Iterator[Row]:
    """Return what starts but drafts badly."""
    draft = _document(config, host, "engine_draft_facts") if config.algorithm != PLAIN else None
    for text in pair.remarks(draft.config) if draft else ():
        ask = "ask whoever trained it; set engine_draft_window to the length it was trained with"
        yield Row("drafter", State.WARN, f"{draft.source if draft else ''}: {text}", ask)


def pool(config: EngineConfig, host: Host) -> Iterator[Row]:
    """Return the prediction of the token pool."""
    try:
        target = facts.known(host, config)
        draft = facts.known(host, config, "engine_draft_facts")
    except ValueError:
        return  # a contradiction already, with its place
    if target is None:
        text = "the model's config.json is not on this machine and engine_model_facts is not set"
        yield Row("memory model", State.NOT_RUN, text)
        return
    seen = predict(config, host.gpu, target, draft)
    context = config.context_length or target.positions
    if seen.tokens is None:
        yield Row("memory model", State.NOT_RUN, "memory is not predicted on the CPU")
    elif context is None or seen.tokens >= context:
        longest = f", {context:,} for the longest request" if context else ""
        yield Row("memory model", State.OK, f"KV pool of {seen.tokens:,} tokens predicted{longest}")


def options(config: EngineConfig, told: Mapping[str, Any] | None) -> Iterator[Row]:
    """Return the rows for the parser on the host; told: {version, options}, None if it cannot be asked."""
    if told is None:
        text = f"no environment there yet: what kdops ships of SGLang {sglang_options.VERSION} counts"
        yield Row("options", State.OK, text)
        return
    parser = f"the host's SGLang {told.get('version')}"
    found = list(sglang_options.wrong(config.extra_args, told["options"], parser))
    for text in found:
        yield Row("options", State.FAIL, text, "correct engine_extra_args")
    if not found:
        yield Row("options", State.OK, f"{parser} takes every option")


def _document(config: EngineConfig, host: Host, variable: str) -> facts.Document | None:
    try:
        return facts.document(host, config, variable)
    except ValueError:
        return None
