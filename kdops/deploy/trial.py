"""Releases that serve for a measurement and are never committed: one transaction for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from kdops.deploy import ending
from kdops.deploy.bundle import Bundle
from kdops.deploy.client import Options, play, request
from kdops.deploy.guard_call import call
from kdops.deploy.heartbeat import Heartbeat
from kdops.deploy.progress import Lines, Now
from kdops.errors import ExitCode, KdopsError, UnreachableError
from kdops.fleet import Host
from kdops.host import HostConnection

_POLL_S = 1.0


class _TrialLines(Lines):
    """Ansible announces the commit before it leaves it out: a trial has none."""

    def show(self, now: Now) -> None:
        if now.phase != "commit":
            super().show(now)


class Trial:
    """Context manager: `serve` puts a release in place; leaving restores what served before.

    While it is open it holds the host's lock. If this process vanishes, the guard on the host restores the
    last committed release once the lease is over.
    """

    def __init__(self, host: Host, first: Bundle, options: Options, say: Callable[[str], None]) -> None:
        self._host, self._options, self._say = host, options, say
        self._opening = {**request(first, host, options), "force": True, "trial": True}
        self._heartbeat = Heartbeat(host, str(self._opening["id"]), options.lease)
        self.restored = "nothing was changed on the host"

    def __enter__(self) -> Trial:
        self._heartbeat.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.restored = self._restore()
        finally:
            self._heartbeat.__exit__(kind, value, trace)
        self._say(self.restored)

    def serve(self, bundle: Bundle) -> None:
        """Start `bundle` afresh, even if it serves already. Raises KdopsError; the trial is then over."""
        opening = {**self._opening, "release": bundle.release, "unit": bundle.unit}
        ended = play(self._host, bundle, opening, self._options, _TrialLines(self._say))
        if ended.status == "canceled":
            raise KeyboardInterrupt
        if ended.status != "successful":
            id_ = str(self._opening["id"])
            outcome = ended.outcome(id_)
            error = ending.failed(self._host, id_, ended, outcome)
            raise ending.with_class(self._host, outcome, error)

    def _restore(self) -> str:
        """Ask the guard to put the last committed release back and wait until it serves."""
        id_ = str(self._opening["id"])
        try:
            with HostConnection(self._host) as connection:
                report = call(connection, "status") or {}
                outcome = report.get("outcome")
                if (report.get("transaction") or {}).get("id") == id_:
                    answer = (
                        call(connection, "restore", "--id", id_, "--reason", "the measurement ended") or {}
                    )
                    while not answer["closed"]:
                        time.sleep(_POLL_S)
                        answer = call(connection, "wait", "--id", id_) or {}
                    outcome = answer["outcome"]
        except (UnreachableError, KeyboardInterrupt) as error:
            raise KdopsError(
                f"{self._host.name}: it was not seen that the previous release serves again",
                cause=error.title if isinstance(error, KdopsError) else "interrupted while it was restored",
                remedy=f"the guard there restores it by itself; see kdops status {self._host.name}",
                code=error.code if isinstance(error, KdopsError) else ExitCode.INTERRUPTED,
            ) from error
        if not outcome or outcome["transaction"] != id_:
            return "nothing was changed on the host"
        said = ending.now_serving(outcome)
        if outcome["result"] == "rollback-failed":
            raise KdopsError(
                f"{self._host.name}: {said}",
                cause=(outcome.get("failure") or {}).get("cause") or "it did not start",
                remedy=f"see kdops logs {self._host.name}, then kdops deploy",
                code=ExitCode.ROLLBACK_FAILED,
            )
        return said
