"""SGLang names that the launcher's process needs: arguments, HTTP application, tokenizer manager, process
end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from sglang.srt.entrypoints import http_server
from sglang.srt.plugins import load_plugins
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.server_args import prepare_server_args

from kdtree_engine.options import RefusedError
from kdtree_engine.sglang import compat

__all__ = ["load_plugins"]

GENERATION_SECONDS = 600.0
_PROMPT = "The capital city of France is"


def hook_process_end(*, on_death: Callable[[str], NoReturn], on_sigterm: Callable[[], None]) -> None:
    """Take over how this process ends; call before load_plugins.

    SGLang ends a failed server by killing its own process (SIGQUIT handlers, failed warm-up:
    kill_process_tree of os.getpid()), which leaves no exit code; its SIGTERM handler drains without a
    deadline."""
    errors = _RecentErrors()

    def kill_process_tree(
        original: Any, parent_pid: int | None, include_parent: bool = True, *rest: Any, **kw: Any
    ) -> Any:
        if include_parent and parent_pid == os.getpid():
            on_death(errors.first())
        return original(parent_pid, include_parent, *rest, **kw)

    HookRegistry.register(compat.KILL_PROCESS_TREE, kill_process_tree, HookType.AROUND)
    HookRegistry.register(compat.SIGTERM_HANDLER, lambda *_, **__: on_sigterm(), HookType.REPLACE)


def prepare(
    path: Path, *, api_key: str | None, quiet_paths: Callable[[Sequence[str] | None], list[str]]
) -> Any:
    """SGLang's resolved ServerArgs for a launch file. Raises RefusedError with SGLang's own reason."""
    try:
        with _usage_errors_raised():
            server_args = prepare_server_args(["--config", str(path)])
        server_args.enable_metrics = True
        server_args.uvicorn_access_log_exclude_prefixes = quiet_paths(
            server_args.uvicorn_access_log_exclude_prefixes
        )
        if server_args.device == "cpu":
            server_args.sleep_on_idle = True  # else the idle loop takes a whole core from other work
            if shutil.which(os.environ.get("CXX", "g++")) is None:
                # SGLang compiles its repetition penalty; without a compiler one request would end the engine.
                os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
        if api_key is not None:
            server_args.api_key = api_key
        server_args.resolve_once()
        server_args.check_server_args()
        _check_port(server_args)
    except RefusedError:
        raise
    except Exception as error:
        line = " ".join(str(error).split())
        raise RefusedError(f"SGLang refuses {path}: {line or type(error).__name__}") from error
    return server_args


@contextlib.contextmanager
def _usage_errors_raised() -> Iterator[None]:
    """argparse's one-line reason as RefusedError instead of SGLang's usage text of 500 flags and exit 2."""

    def error(_parser: argparse.ArgumentParser, message: str) -> NoReturn:
        raise RefusedError(f"SGLang {compat.SUPPORTED}: {message}")

    original = argparse.ArgumentParser.error
    argparse.ArgumentParser.error = error  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.error = original  # type: ignore[method-assign]


def _check_port(server_args: Any) -> None:
    """SGLang binds its port after the load only."""
    host = server_args.host or "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, server_args.port), family=family).close()
    except OSError as error:
        raise RefusedError(f"port {server_args.port} cannot be served: {error.strerror}") from None


def add_middleware(middleware: type, **options: Any) -> None:
    """Put an ASGI middleware around SGLang's HTTP application; call before launch."""
    http_server.app.add_middleware(middleware, **options)


def launch(server_args: Any, *, on_ready: Callable[[], None]) -> None:
    """Start the scheduler processes and serve HTTP in this thread until shut down."""
    http_server.launch_server(server_args, launch_callback=on_ready)


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop that serves HTTP."""
    loop: asyncio.AbstractEventLoop = _manager().event_loop
    return loop


def unfinished_requests() -> int:
    """Requests that the tokenizer side has not finished."""
    return len(_manager().rid_to_state)


async def shut_down() -> None:
    """Let the schedulers release their resources and exit, then stop HTTP
    (TokenizerManager.sigterm_watchdog).
    """
    manager = _manager()
    manager.gracefully_exit = True
    await manager.sigterm_watchdog()


def generate(server_args: Any, *, api_key: str | None) -> None:
    """One real generation over HTTP. Raises OSError or ValueError when no token comes back."""
    body = {"text": _PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}}
    headers = {"content-type": "application/json"}
    if api_key is not None:
        headers["authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(server_args.url() + "/generate", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=GENERATION_SECONDS) as answer:
        tokens = json.load(answer)["meta_info"]["completion_tokens"]
    if tokens < 1:
        raise ValueError("the answer held no token")


def _manager() -> Any:
    return http_server.get_global_state().tokenizer_manager


class _RecentErrors:
    """Remembers what SGLang logged as errors in this process, for the last line of a dead engine."""

    def __init__(self, seconds: float = 15.0) -> None:
        self._seconds = seconds
        self._seen: list[tuple[float, str]] = []
        make = logging.getLogRecordFactory()

        def remember(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = make(*args, **kwargs)
            if record.levelno >= logging.ERROR:
                self._seen = [*self._seen[-9:], (time.monotonic(), record.getMessage())]
            return record

        logging.setLogRecordFactory(remember)

    def first(self) -> str:
        """The first line of the oldest error that is recent: later ones are its consequences."""
        since = time.monotonic() - self._seconds
        recent = [text for when, text in self._seen if when >= since]
        return (
            (recent[0].splitlines() or [""])[0] if recent else "no error was logged here; see the lines above"
        )
