"""What `txn.json` holds: the committed releases in order, the open transaction, the last outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

KEEP = 5
ADOPTED = "unit:"


class Phase(StrEnum):
    """How far a transaction has come; the docstring of `decide.next_step` says who finishes each."""

    LOCKED = "locked"
    UPLOADING = "uploading"
    SWITCHING = "switching"
    STARTING = "starting"
    SMOKED = "smoked"
    RESTORING = "restoring"

    @property
    def before_switch(self) -> bool:
        return self in (Phase.LOCKED, Phase.UPLOADING)


class Result(StrEnum):
    """How a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    ROLLED_BACK = "rolled-back"
    STOPPED = "stopped"
    ROLLBACK_FAILED = "rollback-failed"
    TRIED = "tried"


@dataclass(frozen=True)
class Failure:
    """Why a transaction cannot be committed, as a `KdopsError` without the Python."""

    title: str
    cause: str
    remedy: str
    code: int
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Committed:
    """A release that was smoke-tested, or `unit:NAME`, a hand-written service that kdops replaced."""

    release: str
    unit: str
    venv: str
    at: str
    who: str
    why: str
    enabled: bool = True

    @property
    def adopted(self) -> bool:
        return self.release.startswith(ADOPTED)


@dataclass(frozen=True)
class Transaction:
    """The open transaction. `id` is chosen by the client; times are seconds of CLOCK_BOOTTIME.

    `invocation` is the unit's InvocationID when the transaction opened, again at the switch, and right before
    the new release starts: as long as it has not changed, the old engine still runs. `phases` maps each phase
    to the time it was entered. `tried` names the releases of a trial, the current one last: the same
    transaction goes from one to the next.
    """

    id: str
    release: str
    unit: str
    service: str
    who: str
    why: str
    lease: float
    boot_id: str
    opened_at: str
    phase: Phase
    phases: dict[str, float]
    invocation: str = ""
    ready_timeout: float = 1800.0
    adopting: str = ""
    adopting_enabled: bool = False
    restarted: bool = False
    failure: Failure | None = None
    smoke: dict[str, Any] | None = None
    tried: tuple[str, ...] = ()

    @property
    def trial(self) -> bool:
        """True if nothing of this transaction is ever committed: its releases are legs of an A/B."""
        return bool(self.tried)


@dataclass(frozen=True)
class Outcome:
    """How the last transaction ended, who ended it, what serves now and what to do."""

    transaction: str
    result: Result
    release: str
    unit: str
    serves: str | None
    by: str
    at: str
    who: str
    why: str
    seconds: dict[str, float]
    failure: Failure | None = None
    smoke: dict[str, Any] | None = None


@dataclass(frozen=True)
class State:
    committed: tuple[Committed, ...] = ()
    transaction: Transaction | None = None
    outcome: Outcome | None = None
    version: int = field(default=1)

    @property
    def serving(self) -> Committed | None:
        """The last committed release: what must serve whenever no transaction is open."""
        return self.committed[-1] if self.committed else None

    def with_committed(self, new: Committed) -> tuple[Committed, ...]:
        """Return the committed releases with `new` as the last one, each once, at most KEEP of them."""
        return (*(c for c in self.committed if c.release != new.release), new)[-KEEP:]


def from_json(raw: dict[str, Any]) -> State:
    """Raises TypeError, KeyError or ValueError for a document this version did not write."""
    transaction, outcome = raw["transaction"], raw["outcome"]
    return State(
        committed=tuple(Committed(**c) for c in raw["committed"]),
        transaction=transaction
        and Transaction(
            **{
                **transaction,
                "phase": Phase(transaction["phase"]),
                "failure": _failure(transaction),
                "tried": tuple(transaction.get("tried", ())),
            }
        ),
        outcome=outcome
        and Outcome(**{**outcome, "result": Result(outcome["result"]), "failure": _failure(outcome)}),
        version=raw["version"],
    )


def _failure(raw: dict[str, Any]) -> Failure | None:
    failure = raw["failure"]
    return failure and Failure(**{**failure, "evidence": tuple(failure["evidence"])})
