"""A wrong value in an inventory, told with its place, what is allowed and the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kdops.errors import UsageError
from kdops.fleet.model import Origin


@dataclass(frozen=True)
class Problem:
    """One thing wrong, and where it was written. memory: it is about what fits on a GPU. enough: changes of
    settings, as `--set` takes them, each of which alone would do; None where none was looked for. settable:
    it is about a setting that `--set` can override.
    """

    origin: Origin
    text: str
    memory: bool = False
    enough: tuple[str, ...] | None = None
    settable: bool = False

    def __str__(self) -> str:
        if self.enough is None:
            return f"{self.origin}: {self.text}"
        ways = ", or ".join(self.enough) or "none of the settings alone"
        return f"{self.origin}: {self.text}; enough is {ways}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" for the closest of `known`, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def refuse(title: str, problems: Sequence[Problem]) -> UsageError:
    """Return one error that names every problem, in the order of file and line."""
    ordered = sorted(problems, key=lambda p: (p.origin.source, p.origin.line or 0))
    first, *rest = [str(problem) for problem in ordered]
    return UsageError(title, cause=first, remedy=remedy(problems), evidence=tuple(rest))


def remedy(problems: Sequence[Problem]) -> str:
    """Return what to do about all of `problems`."""
    what = "it" if len(problems) == 1 else f"these {len(problems)} places"
    once = ", or override once with --set" if all(problem.settable for problem in problems) else ""
    return f"correct {what} there{once}"
