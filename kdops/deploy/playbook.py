"""Runs a playbook through ansible-runner and turns its events into what the client needs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kdops import paths
from kdops.fleet import Host


@dataclass(frozen=True)
class Event:
    """One task result. kind: a value of _KINDS. answer: the guard's document, if the task ran the guard."""

    kind: str
    task: str
    answer: Mapping[str, Any] | None = None
    message: str = ""
    diff: tuple[str, ...] = ()


@dataclass
class Run:
    """How a playbook run ended: ansible-runner's status (successful, failed, timeout, canceled), events."""

    status: str = ""
    events: list[Event] = field(default_factory=list)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def outcome(self, transaction: str) -> Mapping[str, Any] | None:
        """Return the guard's last word on how the transaction ended, None if it said nothing of it."""
        told = (event.answer.get("outcome") for event in reversed(self.events) if event.answer)
        return next((one for one in told if one and one["transaction"] == transaction), None)


def run(
    playbook: str,
    host: Host,
    variables: Mapping[str, Any],
    *,
    timeout: float,
    on_event: Callable[[Event], None],
    cancelled: Callable[[], bool],
    check: bool = False,
) -> Run:
    """Run `playbook` for one host. timeout: seconds for all of it. `cancelled` is asked once a second."""
    import ansible_runner

    ended = Run()

    def handle(raw: dict[str, Any]) -> bool:
        event = _event(raw)
        if event is not None:
            ended.events.append(event)
            on_event(event)
        return False  # keep no event files

    with tempfile.TemporaryDirectory(prefix="kdops-run.") as folder:
        result = ansible_runner.run(
            private_data_dir=folder,
            project_dir=str(paths.data("playbooks")),
            playbook=playbook,
            inventory=str(host.inventory.absolute()),
            limit=host.name,
            extravars=dict(variables),
            cmdline="--check --diff" if check else None,
            envvars={"ANSIBLE_RETRY_FILES_ENABLED": "false", "ANSIBLE_NOCOLOR": "1"},
            settings={"pexpect_timeout": 1},
            timeout=int(timeout),
            quiet=True,
            event_handler=handle,
            cancel_callback=cancelled,
        )
        ended.status = result.status
        if not ended.events and result.status != "canceled":
            ended.events.append(Event("failed", "ansible-playbook", message=_output(Path(folder))))
    return ended


def _output(folder: Path) -> str:
    lines = [line for file in folder.glob("artifacts/*/stdout") for line in file.read_text().splitlines()]
    return " ".join(line.strip() for line in lines[-5:]) or "it ended without a word"


_KINDS = {
    "runner_on_ok": "ok",
    "runner_item_on_ok": "item",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_retry": "retry",
    "runner_on_start": "started",
}


def _event(raw: Mapping[str, Any]) -> Event | None:
    kind, data = _KINDS.get(raw["event"]), raw.get("event_data") or {}
    if kind is None:
        return None
    result = data.get("res") or {}
    text = _message(result)
    return Event(
        kind, str(data.get("task", "")), _answer(result.get("stdout")), text, _diff(result.get("diff"))
    )


def _message(result: Mapping[str, Any]) -> str:
    """Return the task's message; of a loop the first item's that failed, as its own only says it is over."""
    items = [item for item in result.get("results") or () if isinstance(item, dict)]
    bad = [
        item["msg"] for item in items if (item.get("failed") or item.get("unreachable")) and item.get("msg")
    ]
    return str(bad[0] if bad else result.get("msg") or "")


def _answer(stdout: Any) -> Mapping[str, Any] | None:
    try:
        found = json.loads(stdout)
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, dict) and "ok" in found else None


def _diff(raw: Any) -> tuple[str, ...]:
    import difflib

    lines: list[str] = []
    for part in raw if isinstance(raw, list) else [raw] if raw else []:
        if isinstance(part, dict) and "after" in part:
            before, after = (str(part.get(side) or "").splitlines() for side in ("before", "after"))
            name = str(part.get("before_header") or part.get("after_header") or "")
            lines += difflib.unified_diff(before, after, f"on the host: {name}", "to deploy", lineterm="")
    return tuple(lines)
