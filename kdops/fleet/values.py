"""Is a value of the type and in the range its setting allows? Answers in words, raises nothing."""

from __future__ import annotations

import ipaddress
import math
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kdops.fleet.settings import SETTINGS, EngineConfig
from kdops.loose import number

_HINTS = get_type_hints(EngineConfig)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST_NAME = re.compile(r"(?=.{1,253}$)(?:(?:^|\.)(?!-)[A-Za-z0-9_-]{1,63}(?<!-))+")
_FLAG = re.compile(r"[a-z][a-z0-9-]*")
_SECRET_FLAG = re.compile(r"api-key|password|secret")


class Wrong(ValueError):
    """The value is not allowed; the text says what is."""


def parse(name: str, value: Any) -> Any:
    """Return `value` as the setting `name` holds it; raise Wrong with what is allowed instead."""
    hint, optional = _unwrap(_HINTS[name])
    if value is None:
        if optional:
            return None
        raise Wrong(f"must not be null; allowed: {allowed(name)}")
    if isinstance(value, str) and value in _words(name):
        return value
    parsed = _PARSERS[_kind(hint)](name, hint, value)
    return _in_range(name, parsed)


def as_text(value: Any) -> str:
    """Return a setting's value as a person reads it; - for none."""
    if isinstance(value, Mapping):
        return " ".join(f"{key}={item}" for key, item in value.items()) or "-"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if value is None or value == [] else str(value)


def from_text(name: str, text: str) -> Any:
    """Read the text of `--set name=text` as YAML would, keeping text where the setting holds text."""
    import yaml

    hint, _ = _unwrap(_HINTS[name])
    if _kind(hint) in ("str", "literal") and text not in ("null", ""):
        return text
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: !!int abc, 2026-99-99, 5000 digits
        raise Wrong(f"{text[:80]!r} is not valid YAML; allowed: {allowed(name)}") from None


def allowed(name: str) -> str:
    """Say in words what the setting `name` may hold."""
    hint, optional = _unwrap(_HINTS[name])
    row = SETTINGS[name]
    kind = _kind(hint)
    if kind == "literal":
        words = ", ".join(map(str, get_args(hint)))
    else:
        words = "an IP address or a host name" if row.address else _WORDS[kind]
        if row.low is not None or row.high is not None:
            words += " " + _range(row.low, row.high, row.exclusive)
    words = " or ".join([words, *_words(name)])
    return words + (" or null" if optional else "")


def _range(low: float | None, high: float | None, exclusive: bool) -> str:
    if high is None:
        return f"of at least {low:g}"
    return f"strictly between {low:g} and {high:g}" if exclusive else f"from {low:g} to {high:g}"


def _unwrap(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        inner = [arg for arg in get_args(hint) if arg is not type(None)]
        return inner[0], len(inner) < len(get_args(hint))
    return hint, False


def _words(name: str) -> list[str]:
    """The words that the setting `name` may hold besides values of its kind."""
    others = get_args(_HINTS[name])[1:] if get_origin(_HINTS[name]) in (Union, types.UnionType) else ()
    return [word for other in others if get_origin(other) is Literal for word in get_args(other)]


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "literal"
    if hint in (bool, int, float, str):
        return str(hint.__name__)
    return "environment" if get_args(hint)[1] is str else "options"


def _literal(name: str, hint: Any, value: Any) -> Any:
    if isinstance(value, str) and value in get_args(hint):
        return value
    from kdops.fleet.problems import nearest

    raise Wrong(f"{value!r} is not allowed{nearest(str(value), get_args(hint))}; allowed: {allowed(name)}")


def _bool(name: str, _hint: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Wrong(f"{value!r} is not true or false")


def _int(name: str, _hint: Any, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise Wrong(f"{value!r} is not a whole number; allowed: {allowed(name)}")


def _float(name: str, _hint: Any, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and number(value) is not None:
        return float(value)
    raise Wrong(f"{value!r} is not a number; allowed: {allowed(name)}")


def _str(name: str, _hint: Any, value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(f"{value!r} is not text; put it in quotes")
    pattern = SETTINGS[name].pattern
    if pattern and not re.fullmatch(pattern, value):
        raise Wrong(f"{value[:80]!r} is not allowed; it must match {pattern}")
    if SETTINGS[name].address and not _is_address(value):
        raise Wrong(f"{value[:80]!r} is neither an IP address nor a host name")
    return _sound(value)


def _is_address(text: str) -> bool:
    """Goes by form alone. A name's last label is no number (RFC 3696, 2): 999.1.1.1 is a mistyped address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return bool(_HOST_NAME.fullmatch(text)) and not text.rpartition(".")[2].isdigit()
    return True


def _environment(name: str, _hint: Any, value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise Wrong(f"{value!r} is not a mapping of names to text")
    for key, text in value.items():
        if not isinstance(key, str) or not _ENV_NAME.fullmatch(key):
            raise Wrong(f"{key!r} is not the name of an environment variable")
        if key.startswith("KDTREE_") or key == "PYTHONPATH":
            raise Wrong(f"{key} is set by kdops itself; use its engine_* key")
        if isinstance(text, bool) or not isinstance(text, str | int):
            raise Wrong(f"{key}: {text!r} is not text; put it in quotes")
    return {key: _sound(str(text)) for key, text in sorted(value.items())}


def _options(name: str, _hint: Any, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Wrong(f"{value!r} is not a mapping of options to values, such as {{enable-cache-report: true}}")
    owned = {row.flag: key for key, row in SETTINGS.items() if row.flag}
    for key, item in value.items():
        if not isinstance(key, str) or not _FLAG.fullmatch(key):
            raise Wrong(f"{key!r} is not an option name (lower case, no leading dashes)")
        if f"--{key}" in owned:
            raise Wrong(f"--{key} has its own key: engine_{owned[f'--{key}']}")
        if _SECRET_FLAG.search(key):
            raise Wrong(f"--{key} would put a secret into files and argv; use engine_api_key_file")
        if key == "config":
            raise Wrong("--config is how kdops passes its own file")
        for part in item if isinstance(item, list) else [item]:
            if not isinstance(part, str | int | float) or (
                isinstance(part, float) and not math.isfinite(part)
            ):
                raise Wrong(f"{key}: {part!r} is not text, a number, true or false, or a list of them")
            if isinstance(part, str) and _sound(part).startswith("-"):
                raise Wrong(f"{key}: {part!r} starts with a dash and would be read as another option")
    return dict(sorted(value.items()))


def _sound(text: str) -> str:
    """Refuse what no process can receive unchanged through systemd: NUL, lone surrogates, Unicode
    noncharacters.
    """
    for char in text:
        point = ord(char)
        if point == 0 or 0xD800 <= point <= 0xDFFF or 0xFDD0 <= point <= 0xFDEF or point & 0xFFFE == 0xFFFE:
            raise Wrong(f"{text[:60]!r} holds U+{point:04X}, which systemd refuses in any value")
    return text


def _in_range(name: str, value: Any) -> Any:
    row = SETTINGS[name]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    low = row.low if row.low is not None else -math.inf
    high = row.high if row.high is not None else math.inf
    if (low < value < high) if row.exclusive else (low <= value <= high):
        return value
    raise Wrong(f"{value!r} is out of range; allowed: {allowed(name)}")


_PARSERS = {
    "literal": _literal, "bool": _bool, "int": _int, "float": _float, "str": _str,
    "environment": _environment, "options": _options,
}  # fmt: skip
_WORDS = {
    "bool": "true or false", "int": "a whole number", "float": "a number", "str": "text",
    "environment": "a mapping of variable names to text", "options": "a mapping of SGLang options to values",
}  # fmt: skip
