"""The one error type a user meets, and the exit codes scripts can rely on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every kdops command (documented in docs/operating.md)."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    LOCKED = 4
    REFUSED = 5
    ROLLED_BACK = 6
    ROLLBACK_FAILED = 7
    DRIFT = 8
    INCONCLUSIVE = 9
    NOT_LOSSLESS = 10
    INTERRUPTED = 130


class KdopsError(Exception):
    """A failure with everything a person needs to act on it.

    title: what failed, one line. cause: why, as far as known. remedy: what to do next.
    evidence: the lines that show it (log lines, file:line). code: the process's exit code.
    """

    def __init__(
        self,
        title: str,
        *,
        cause: str,
        remedy: str,
        code: ExitCode = ExitCode.FAILED,
        evidence: tuple[str, ...] = (),
    ) -> None:
        super().__init__(title)
        self.title = title
        self.cause = cause
        self.remedy = remedy
        self.code = code
        self.evidence = evidence


class UsageError(KdopsError):
    """A wrong name, key, value or file: exit code 2."""

    def __init__(self, title: str, *, cause: str, remedy: str, evidence: tuple[str, ...] = ()) -> None:
        super().__init__(title, cause=cause, remedy=remedy, code=ExitCode.USAGE, evidence=evidence)


class UnreachableError(KdopsError):
    """A host that cannot be reached or whose key is not trusted: exit code 3."""

    def __init__(self, title: str, *, cause: str, remedy: str, evidence: tuple[str, ...] = ()) -> None:
        super().__init__(title, cause=cause, remedy=remedy, code=ExitCode.UNREACHABLE, evidence=evidence)
