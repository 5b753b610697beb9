"""From a hand-written SGLang service to inventory values, each with where it stood, and what cannot be said
in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from kdops.deploy.unit_text import Directive, directives, last, words
from kdops.errors import UsageError
from kdops.fleet import SETTINGS, Host
from kdops.host import HostConnection

# Names that SGLang used before 0.5.23.
_RENAMED = {
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
    "--tp": "--tp-size",
    "--tensor-parallel-size": "--tp-size",
    "--model": "--model-path",
}
_SECRET = re.compile(r"key|token|secret|passw", re.IGNORECASE)
_ALGORITHMS = {"DFLASH": "linear", "DDTREE": "ddtree"}
_EXPRESSED = {  # by inventory values, or by the unit that kdops renders
    "Service": {"ExecStart", "Environment", "User", "Type", "Restart", "RestartSec"},
    "Unit": {"Description", "After", "Wants", "Documentation"},
    "Install": {"WantedBy"},
}


@dataclass(frozen=True)
class Adopted:
    """values: inventory variable → (value, origin). unsaid: what an inventory cannot express, with origin."""

    unit: str
    values: dict[str, tuple[Any, str]]
    unsaid: tuple[str, ...]

    def text(self) -> str:
        """Return host_vars as YAML, the origins and the rest as comments."""
        lines = [
            f"# Read from {self.unit}. The first deploy stops and disables it; a rollback returns to it."
        ]
        for name, (value, origin) in self.values.items():
            dumped = yaml.safe_dump({name: value}, default_flow_style=False, allow_unicode=True, width=2**20)
            lines += [f"# {origin}", dumped.rstrip("\n")]
        if self.unsaid:
            lines += ["# Not expressed here; decide about each:", *(f"#   {line}" for line in self.unsaid)]
        return "\n".join(lines)


def read(host: Host, unit: str) -> Adopted:
    """Ask the host for `unit`. Raises UsageError when it is not there, UnreachableError."""
    if not re.fullmatch(r"[A-Za-z0-9:_.@-]+", unit) or unit.startswith("-"):
        raise UsageError(
            f"{unit!r} is no unit name", cause="letters, digits and :_.@- are allowed", remedy="correct it"
        )
    name = unit if "." in unit else f"{unit}.service"
    with HostConnection(host) as connection:
        result = connection.run(["systemctl", "cat", "--", name])
    if result.code != 0:
        raise UsageError(
            f"{host.name} has no unit {name}",
            cause=result.stderr.decode(errors="replace").strip() or f"systemctl cat ended with {result.code}",
            remedy="list what there is: systemctl list-unit-files --type=service",
        )
    return translate(name, result.text)


def translate(unit: str, text: str) -> Adopted:
    """Pure part of `read`; text: what `systemctl cat` printed. Raises UsageError when it starts no SGLang."""
    found = directives(text)
    start = last(found, "Service", "ExecStart")
    if start is None:
        raise UsageError(
            f"{unit} starts nothing", cause="it has no ExecStart=", remedy="name the SGLang service"
        )
    values: dict[str, tuple[Any, str]] = {"engine_adopted_unit": (unit, start.origin)}
    unsaid: list[str] = []
    _command(start, values, unsaid)
    _environment(found, values, unsaid)
    user = last(found, "Service", "User")
    values["engine_user"] = (user.value, user.origin) if user else ("root", "no User= in the unit")
    for directive in found:
        if directive.key not in _EXPRESSED.get(directive.section, set()):
            unsaid.append(f"{directive.key}={directive.value}  ({directive.origin})")
    return Adopted(unit, values, tuple(unsaid))


def _command(start: Directive, values: dict[str, tuple[Any, str]], unsaid: list[str]) -> None:
    try:
        argv = words(start.value)
    except ValueError as error:
        unsaid.append(f"ExecStart: {error}  ({start.origin})")
        return
    flags = {row.flag: name for name, row in SETTINGS.items() if row.flag}
    extra: dict[str, Any] = {}
    first = next((i for i, word in enumerate(argv) if word.startswith("--")), len(argv))
    if "sglang" not in " ".join(argv[:first]):
        unsaid.append(f"the program: {' '.join(argv[:first])}  ({start.origin})")
    for flag, value in _options(argv[first:]):
        name = flags.get(_RENAMED.get(flag, flag))
        if flag == "--api-key":
            unsaid.append(f"--api-key: put it in a file and name it in engine_api_key_file  ({start.origin})")
        elif name == "algorithm":
            values["engine_profile"] = (_ALGORITHMS.get(str(value).upper(), str(value)), start.origin)
        elif name is not None:
            values[f"engine_{name}"] = (value, start.origin)
        else:
            extra[flag.removeprefix("--")] = value
    values.setdefault("engine_profile", ("autoregressive", "no --speculative-algorithm"))
    if extra:
        values["engine_extra_args"] = (extra, start.origin)


def _options(argv: list[str]) -> list[tuple[str, Any]]:
    """Return (flag, value) pairs; a flag without a value is true, one with several is a list."""
    found: list[tuple[str, list[str]]] = []
    for word in argv:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            found.append((flag, [value] if equals else []))
        elif found:
            found[-1][1].append(word)
    return [(flag, _value(given)) for flag, given in found]


def _value(given: list[str]) -> Any:
    if not given:
        return True
    scalars = [_scalar(word) for word in given]
    return scalars[0] if len(scalars) == 1 else scalars


def _scalar(word: str) -> Any:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _environment(found: tuple[Directive, ...], values: dict[str, tuple[Any, str]], unsaid: list[str]) -> None:
    environment: dict[str, str] = {}
    origin = ""
    for directive in found:
        if (directive.section, directive.key) != ("Service", "Environment"):
            continue
        try:
            pairs = [word.partition("=")[::2] for word in words(directive.value)]
        except ValueError as error:
            unsaid.append(f"Environment: {error}  ({directive.origin})")
            continue
        for name, value in pairs:
            if _SECRET.search(name):
                unsaid.append(f"Environment {name}: may be a secret, value not copied  ({directive.origin})")
            else:
                environment[name], origin = value, directive.origin
    if environment:
        values["engine_environment"] = (environment, origin)
