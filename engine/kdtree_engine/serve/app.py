"""Brings the parts together: checks, SGLang in this process, READY, drain, and one clear last line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from kdtree_engine import page as pages
from kdtree_engine.options import RefusedError
from kdtree_engine.page import Phase
from kdtree_engine.serve import config, drain, settings
from kdtree_engine.serve.exits import Exit, StopError
from kdtree_engine.serve.supervisor import Supervisor
from kdtree_engine.sglang import compat


def main(argv: Sequence[str]) -> int:
    """Run until stopped. Returns the exit code; a dying engine ends the process at once (70, 71, 75)."""
    path = config.config_path(argv)
    try:
        launcher = Launcher(path, settings.from_environment(os.environ))
        launcher.run()
    except RefusedError as refused:
        return _say(Exit.CONFIGURATION_REFUSED, f"configuration refused: {refused}")
    except StopError as stop:
        return _say(stop.code, stop.sentence)
    return _say(Exit.DRAINED, "drained and stopped")


class Launcher:
    """One start of the engine."""

    def __init__(self, path: Path, own: settings.Settings) -> None:
        problem = compat.version_problem()
        if problem:
            raise RefusedError(problem)
        config.check_file(path)
        self._path = path
        self._own = own
        self._key = settings.api_key(own.credentials)
        self._gate = drain.Gate()
        self._page_path = own.runtime / f"kdtree-{os.getpid()}.page"
        self._page = pages.create(self._page_path)
        self._answered = True
        self._children: dict[int, str] = {}
        self._drain_ends: float | None = None
        self._supervisor = Supervisor(
            self._page,
            phase_limit=own.phase_seconds,
            watchdog_seconds=own.watchdog_seconds,
            answers=self._http_side_answers,
        )

    def run(self) -> None:
        """Load, serve and drain. Raises StopError or RefusedError when it ends otherwise than drained."""
        signal.signal(signal.SIGTERM, self._stop_while_loading)
        self._supervisor.look()
        self._supervisor.start()
        try:
            from kdtree_engine.sglang.compat import server

            self._server = server
            server.hook_process_end(on_death=self._died, on_sigterm=self._sigterm)
            server.load_plugins()
            missing = compat.missing_registrations("DDTREE")
            if missing:
                raise StopError(
                    Exit.PLUGIN_NOT_REGISTERED,
                    f"SGLang did not load the kdtree plugin whole, missing: {', '.join(missing)}",
                )
            server_args = server.prepare(self._path, api_key=self._key, quiet_paths=config.quiet_paths)
            server.add_middleware(drain.GateMiddleware, gate=self._gate)
            try:
                server.launch(server_args, on_ready=lambda: self._ready(server_args))
            except (Exception, SystemExit) as error:
                self._died(f"{type(error).__name__}: {_first_line(error)}")
        finally:
            self._supervisor.stop()
            self._page_path.unlink(missing_ok=True)

    def _ready(self, server_args: Any) -> None:
        """SGLang's warm-up is over; prove it with a generation through the front door, then tell systemd."""
        try:
            self._server.generate(server_args, api_key=self._key)
        except Exception as error:
            self._died(f"the first generation failed: {type(error).__name__}: {_first_line(error)}")
        self._children = compat.child_titles()
        self._page.enter(Phase.SERVING)
        self._supervisor.look()
        self._supervisor.tell("READY=1")
        print(f"kdtree: ready; {self._supervisor.phases()}", file=sys.stderr, flush=True)

    def _http_side_answers(self) -> bool:
        """Whether the event loop ran the mark left at the last call; leaves the next one."""
        answered, self._answered = self._answered, False
        with contextlib.suppress(RuntimeError):  # the loop is closed at the very end
            self._server.event_loop().call_soon_threadsafe(setattr, self, "_answered", True)
        return answered

    def _stop_while_loading(self, *_: Any) -> NoReturn:
        self._end(Exit.DRAINED, "stopped while loading")

    def _sigterm(self) -> None:
        """SIGTERM once SGLang's event loop runs; called in that loop."""
        if self._page.phase != Phase.SERVING:
            self._stop_while_loading()
        if self._drain_ends is None:
            self._drain_ends = time.monotonic() + self._own.drain_seconds
            self._task = asyncio.get_running_loop().create_task(self._drain(self._drain_ends))

    async def _drain(self, ends: float) -> None:
        self._gate.closed = True
        self._supervisor.draining = lambda: drain.words(self._unfinished(), ends - time.monotonic())
        self._supervisor.tell("STOPPING=1", f"STATUS={self._supervisor.draining()}")
        while self._unfinished() and time.monotonic() < ends:
            await asyncio.sleep(0.05)
        left = self._unfinished()
        if left:
            self._end(
                Exit.DRAIN_DEADLINE,
                f"drain deadline of {self._own.drain_seconds:.0f} s passed, {left} cut off",
            )
        await self._server.shut_down()

    def _unfinished(self) -> int:
        return max(self._gate.inside, self._server.unfinished_requests())

    def _died(self, why: str) -> NoReturn:
        phase = Phase(self._page.phase)
        gone = compat.ended(self._children)
        if gone and not why.startswith("Subprocess"):  # SGLang names the process itself there
            why = f"{why}; ended first: {', '.join(gone)}"
        if phase is Phase.SERVING:
            self._end(Exit.DIED_SERVING, f"engine died while serving: {why}")
        self._end(Exit.DIED_LOADING, f"engine died while loading (phase {phase.label}): {why}")

    def _end(self, code: Exit, sentence: str) -> NoReturn:
        """End this process and its children now, from any thread."""
        self._supervisor.tell(f"STATUS={sentence}")
        compat.kill_children()
        self._page_path.unlink(missing_ok=True)
        _say(code, sentence)
        os._exit(code)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def _say(code: Exit, sentence: str) -> int:
    sys.stdout.flush()
    print(f"kdtree: {sentence} (exit {int(code)})", file=sys.stderr, flush=True)
    return int(code)
