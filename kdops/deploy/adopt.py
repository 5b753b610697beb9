"""From a hand-written SGLang service to inventory values, each with where it stood, and what cannot be said
in them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import yaml

from kdops.deploy import start_command
from kdops.deploy.unit_text import Directive, directives, last, words
from kdops.errors import UsageError
from kdops.fleet import SETTINGS, Host
from kdops.host import HostConnection
from kdops.text import printable

# Names that SGLang used before 0.5.23.
_RENAMED = {
    "--speculative-dflash-draft-window-size": "--speculative-draft-window-size",
    "--tp": "--tp-size",
    "--tensor-parallel-size": "--tp-size",
    "--model": "--model-path",
}
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
            lines += [
                "# Not expressed here; decide about each:",
                *(f"#   {printable(line)}" for line in self.unsaid),
            ]
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
    """Pure part of `read`; text: what `systemctl cat` printed. Raises UsageError for what is no hand-written
    SGLang: its first deploy would stop the unit.
    """
    found = directives(text)
    start = last(found, "Service", "ExecStart")
    if start is None:
        raise UsageError(
            f"{unit} starts nothing", cause="it has no ExecStart=", remedy="name the SGLang service"
        )
    if "kdtree_engine.serve" in start.value:
        raise UsageError(
            f"{unit} is kdops's own",
            cause=f"its ExecStart= runs an engine that kdops deployed  ({start.origin})",
            remedy="there is nothing to adopt: `kdops plan HOST` says what a deploy would change",
        )
    values: dict[str, tuple[Any, str]] = {"engine_adopted_unit": (unit, start.origin)}
    unsaid: list[str] = []
    environment = _environment(found, unsaid)
    try:
        command = start_command.read(start.value, {name: value for name, (value, _) in environment.items()})
    except ValueError as error:
        sglang = re.search("sglang|--model-path", start.value) is not None
        unsaid.append(f"ExecStart: {error}  ({start.origin})")
    else:
        sglang = command.sglang
        environment |= {name: (value, start.origin) for name, value in command.environment.items()}
        unsaid += [f"{line}  ({start.origin})" for line in command.unsaid]
        _flags(command.arguments, start.origin, values, unsaid)
    if not sglang:
        raise UsageError(
            f"{unit} does not start SGLang",
            cause=f"its ExecStart= names neither sglang nor --model-path  ({start.origin})",
            remedy="name the unit that runs `sglang serve` or `-m sglang.launch_server`; where a script does "
            "it, write the values and engine_adopted_unit into the inventory yourself",
        )
    _take_environment(environment, values, unsaid)
    user = last(found, "Service", "User")
    values["engine_user"] = (user.value, user.origin) if user else ("root", "no User= in the unit")
    for directive in found:
        known = directive.key in _EXPRESSED.get(directive.section, set())
        if not known or (directive.key == "ExecStart" and directive is not start):
            unsaid.append(_directive(directive))
    return Adopted(unit, values, tuple(unsaid))


def _directive(directive: Directive) -> str:
    secret = start_command.SECRET.search(directive.key + directive.value)
    value = "(not shown: may hold a secret)" if secret else directive.value
    return f"{directive.key}={value}  ({directive.origin})"


def _flags(arguments: list[str], origin: str, values: dict[str, tuple[Any, str]], unsaid: list[str]) -> None:
    flags = {row.flag: name for name, row in SETTINGS.items() if row.flag}
    options = _options(arguments)
    asked = next((str(value) for flag, value in options if flag == "--speculative-algorithm"), "")
    known = not asked or asked.upper() in _ALGORITHMS
    extra: dict[str, Any] = {}
    for flag, value in options:
        name = flags.get(_RENAMED.get(flag, flag))
        if start_command.SECRET_FLAG.fullmatch(flag):
            where = (
                "put it in a file and name it in engine_api_key_file" if flag == "--api-key" else "a secret"
            )
            unsaid.append(f"{flag}: not taken over, {where}  ({origin})")
        elif start_command.unresolved(str(value)):
            unsaid.append(f"{flag} {value}: its variable is not set by Environment=  ({origin})")
        elif name == "algorithm" and known:
            values["engine_profile"] = (_ALGORITHMS[asked.upper()], origin)
        elif flag.startswith("--speculative-") and not known:
            unsaid.append(f"{flag} {value}: kdops has no profile for {asked}  ({origin})")
        elif name is not None:
            values[f"engine_{name}"] = (value, origin)
        else:
            extra[flag.removeprefix("--")] = value
    none = "no --speculative-algorithm" if known else f"{asked} is not expressed"
    values.setdefault("engine_profile", ("autoregressive", none))
    if "engine_model" not in values:
        unsaid.append(f"no --model-path was found: set engine_model  ({origin})")
    if extra:
        values["engine_extra_args"] = (extra, origin)


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
    if re.fullmatch(r"[+-]?[0-9]{1,18}", word):
        return int(word)
    if re.fullmatch(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,2})?", word):
        return float(word)
    return word


def _environment(found: tuple[Directive, ...], unsaid: list[str]) -> dict[str, tuple[str, str]]:
    """Return name → (value, origin) of every Environment= in force."""
    environment: dict[str, tuple[str, str]] = {}
    for directive in found:
        if (directive.section, directive.key) != ("Service", "Environment"):
            continue
        try:
            pairs = [word.partition("=")[::2] for word in words(directive.value)]
        except ValueError as error:
            unsaid.append(f"Environment: {error}  ({directive.origin})")
            continue
        environment |= {name: (value, directive.origin) for name, value in pairs}
    return environment


def _take_environment(
    environment: dict[str, tuple[str, str]], values: dict[str, tuple[Any, str]], unsaid: list[str]
) -> None:
    taken: dict[str, str] = {}
    origin = ""
    for name, (value, at) in environment.items():
        if start_command.SECRET.search(name):
            unsaid.append(f"Environment {name}: may be a secret, value not copied  ({at})")
        elif start_command.unresolved(value):
            unsaid.append(f"Environment {name}: {value} is only known on the host  ({at})")
        else:
            taken[name], origin = value, at
    if taken:
        values["engine_environment"] = (taken, origin)
