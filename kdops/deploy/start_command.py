"""From ExecStart= to SGLang's own arguments: variables, env(1) and a shell around it taken away."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

SECRET = re.compile(r"key|token|secret|passw|credential|auth|bearer", re.IGNORECASE)
SECRET_FLAG = re.compile(r"--(?:.*-)?(?:keys?|token|secret|password|passwd|credentials?)")
_PREFIXES = "@-:+!|"  # systemd.service(5), "Command lines"
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)")
_SGLANG = re.compile(r"sglang\.[\w.]+|(?:.*/)?sglang|.*sglang.*launch_server(?:\.py)?")
_OPERATOR = re.compile(r"[();<>|&\n]+")


@dataclass(frozen=True)
class Command:
    """arguments: what SGLang gets. environment: variables that the command itself sets. unsaid: the rest.
    sglang: whether SGLang, or an option that only it has, was found.
    """

    arguments: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    unsaid: list[str] = field(default_factory=list)
    sglang: bool = False


def read(value: str, environment: Mapping[str, str]) -> Command:
    """Return SGLang's part of the command line `value`; environment resolves its variables.

    A variable that is not in `environment`, or whose name looks like a secret's, stays as it is written.
    Raises ValueError for unbalanced quotes.
    """
    found = Command()
    argv = [
        word.replace("%%", "%")
        for word in _expand_all(shlex.split(value.lstrip(_PREFIXES), posix=True), environment)
    ]
    argv = _without_env(argv, found)
    if argv and PurePosixPath(argv[0]).name in _SHELLS and (script := _script(argv)) is not None:
        argv = _shell(script, environment, found)
    return dataclasses.replace(found, sglang=_arguments(argv, found))


def shown(words: Iterable[str]) -> str:
    """Return a command line fit to be shown: what may be a secret is blanked out."""
    told: list[str] = []
    hide = False
    for word in words:
        flag, equals, _ = word.partition("=")
        secret = SECRET_FLAG.fullmatch(flag) or (equals and SECRET.search(flag))
        told.append("***" if hide else f"{flag}=***" if secret and equals else word)
        hide = bool(secret) and not equals
    text = " ".join(told)
    return re.sub(r"(?i)(bearer|basic)\s+\S+", r"\1 ***", text)


def unresolved(word: str) -> bool:
    """Say whether a value still holds a variable, a command substitution or a unit specifier."""
    return bool(re.search(r"\$[A-Za-z_{(]|`|%[A-Za-z]", word))


def _expand_all(words: Iterable[str], environment: Mapping[str, str]) -> list[str]:
    """Expand variables; one that is a word of its own becomes as many words as it holds."""
    expanded: list[str] = []
    for word in words:
        alone = re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", word)
        expanded += _expand(word, environment).split() if alone else [_expand(word, environment)]
    return expanded


def _expand(word: str, environment: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1] or match[2]
        return match[0] if SECRET.search(name) else environment.get(name, match[0])

    return _VARIABLE.sub(value, word)


def _assign(word: str, found: Command) -> bool:
    match = _ASSIGNMENT.fullmatch(word)
    if match is None:
        return False
    found.environment[match[1]] = match[2]
    return True


def _without_env(argv: list[str], found: Command) -> list[str]:
    if not argv or PurePosixPath(argv[0]).name != "env":
        return argv
    rest = argv[1:]
    while rest and _assign(rest[0], found):
        rest = rest[1:]
    return rest


def _script(argv: list[str]) -> str | None:
    """Return the script of `sh -c SCRIPT`, `bash -lc SCRIPT`; None when it is in a file."""
    for number, word in enumerate(argv[1:], 1):
        if not word.startswith("-"):
            return None
        if not word.startswith("--") and "c" in word:
            return argv[number + 1] if number + 1 < len(argv) else None
    return None


def _shell(script: str, environment: Mapping[str, str], found: Command) -> list[str]:
    """Return the words of the command that starts SGLang; list the others."""
    engine: list[str] = []
    for command in _commands(script):
        if command[0] == "export":
            rest = [word for word in command[1:] if not _assign(word, found)]
            command = ["export", *rest] if rest else []
        while command and _assign(command[0], found):
            command = command[1:]
        command = command[1:] if command[:1] == ["exec"] else command
        command = _without_env(command, found)
        known = {**environment, **found.environment}
        words = _expand_all(command, known)
        if not engine and any(_SGLANG.fullmatch(word) for word in words):
            engine = words
        elif words:
            found.unsaid.append(f"the shell also runs: {shown(words)}")
    return engine


def _commands(script: str) -> list[list[str]]:
    lexer = shlex.shlex(script.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    for word in lexer:
        if _OPERATOR.fullmatch(word):
            commands.append([] if word in (";", "&&", "||", "&") else [word])
        else:
            commands[-1].append(word)
    return [command for command in commands if command]


def _arguments(argv: list[str], found: Command) -> bool:
    """Split interpreter, wrappers and module from SGLang's options; return whether it is SGLang at all."""
    at = next((i for i, word in enumerate(argv) if _SGLANG.fullmatch(word)), None)
    start = 0 if at is None else at + 1
    first = next((i for i, word in enumerate(argv) if i >= start and word.startswith("--")), len(argv))
    program = argv[: first if at is None else at]
    python = bool(program) and PurePosixPath(program[0]).name.startswith("python")
    plain = at is not None and (not program or (python and set(program[1:]) <= {"-m", "-u", "-O", "-s"}))
    if not plain:
        found.unsaid.append(f"the program: {shown(program) or 'no SGLang was found in it'}")
    found.arguments.extend(argv[first:])
    return at is not None or any(word.partition("=")[0] == "--model-path" for word in argv)
