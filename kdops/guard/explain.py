"""From a failed start to words: what the unit's end and the launcher's exit code mean."""

from __future__ import annotations

from kdops.errors import ExitCode
from kdops.guard.model import Failure
from kdops.guard.systemd import Unit

# Exit codes of kdtree_engine.serve (docs/architecture.md, "Engine launcher").
_LAUNCHER = {
    "64": ("the launcher refused the configuration", "read the evidence lines, correct the named setting"),
    "65": (
        "the DDTree plugin was not registered with SGLang",
        "the venv and the kdtree-engine of this release disagree",
    ),
    "70": (
        "the engine died while loading",
        "read the evidence lines; check the model path, memory and settings",
    ),
    "71": ("the engine died while serving", "read the evidence lines"),
    "75": ("the drain deadline passed", "raise the drain deadline or stop the clients first"),
}
_RESULTS = {
    "timeout": (
        "the engine was not ready in time",
        "look at the last phase below; raise the start timeout if it moved",
    ),
    "watchdog": ("the engine stopped making progress and the watchdog ended it", "read the evidence lines"),
    "oom-kill": ("the kernel's OOM killer ended the engine", "lower the host memory the engine needs"),
    "resources": (
        "systemd could not set the service up",
        "read `systemctl status`: a folder or credential is missing",
    ),
    "start-limit-hit": ("the service was started too often", "run `systemctl reset-failed` on the host"),
}


def failed_start(release: str, unit: Unit, lines: tuple[str, ...]) -> Failure:
    """Describe the end of the first start of `release`."""
    if unit.result in _RESULTS:
        cause, remedy = _RESULTS[unit.result]
    elif unit.exit_code == "1" and unit.exit_status in _LAUNCHER:  # CLD_EXITED
        cause, remedy = _LAUNCHER[unit.exit_status]
        cause += f" (exit status {unit.exit_status})"
    elif unit.exit_code in ("2", "3"):  # CLD_KILLED, CLD_DUMPED
        cause, remedy = f"signal {unit.exit_status} ended the engine", "read the evidence lines; who sent it?"
    else:
        cause, remedy = (
            f"the process ended with status {unit.exit_status} ({unit.result})",
            "read the evidence lines",
        )
    if unit.status_text:
        cause += f"; last phase: {unit.status_text}"
    return Failure(f"release {release} did not start", cause, remedy, ExitCode.ROLLED_BACK, lines)


def not_ready(release: str, seconds: float, unit: Unit, lines: tuple[str, ...]) -> Failure:
    """Describe a start that neither failed nor became ready."""
    return Failure(
        f"release {release} was not ready after {seconds:.0f} s",
        f"the engine is still loading; last phase: {unit.status_text or 'none reported'}",
        "look at the evidence lines; raise kdops_ready_timeout if the load is only slow",
        ExitCode.ROLLED_BACK,
        lines,
    )


def vanished(release: str, phase: str, *, rebooted: bool) -> Failure:
    """Describe a transaction whose client is gone."""
    gone = "the host was restarted" if rebooted else "the client is gone (its lease is over)"
    return Failure(
        f"the deploy of {release} was not finished",
        f"{gone} in phase '{phase}'",
        "deploy again",
        ExitCode.ROLLED_BACK,
    )
