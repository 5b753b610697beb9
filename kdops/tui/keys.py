"""Every key of the dashboard, by name, and the file in which a person gives them other keys."""

from __future__ import annotations

import os
import tomllib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from textual.keys import KEY_NAME_REPLACEMENTS, Keys

from kdops.errors import UsageError
from kdops.files import require_regular
from kdops.fleet.problems import nearest

_RESERVED = ("ctrl+c", "ctrl+q", "ctrl+z")


def names() -> set[str]:
    """Return the names that keys have in Textual, but for those that a terminal or Textual needs itself."""
    printed = [chr(code) for code in range(33, 127)]
    named = (
        unicodedata.name(c).lower().replace(" ", "_").replace("-", "_") for c in printed if not c.isalnum()
    )
    characters = {KEY_NAME_REPLACEMENTS.get(name, name) for name in named}
    letters = {c for c in printed if c.isalnum()}
    return ({key.value for key in Keys} | letters | characters) - {*_RESERVED}


VIEWS = ("fleet", "host", "journal", "ab")


@dataclass(frozen=True)
class Key:
    """One command: `name` as in the file, its keys (comma-separated, Textual's names), what it does.

    view: where it holds; "" everywhere. action: the view's own, the dashboard's if it begins with "app." or
    no view is named. hint: its word in the last line of the screen; "" leaves it out.
    """

    name: str
    keys: str
    action: str
    help: str
    view: str = ""
    hint: str = ""


KEYS = (
    Key("view.fleet", "1", "view('fleet')", "Fleet"),
    Key("view.host", "2", "view('host')", "Host"),
    Key("view.journal", "3", "view('journal')", "Journal"),
    Key("view.ab", "4", "view('ab')", "A/B"),
    Key("actions", "a", "actions", "Actions on the host", hint="actions"),
    Key("filter", "slash", "filter", "Filter", hint="filter"),
    Key("help", "question_mark", "help", "Keys", hint="keys"),
    Key("palette", "ctrl+p", "command_palette", "Palette"),
    Key("theme", "t", "next_theme", "Next theme"),
    Key("quit", "q", "quit", "Quit; services go on", hint="quit"),
    Key("down", "j,down", "move(1)", "Down"),
    Key("up", "k,up", "move(-1)", "Up"),
    Key("page-down", "ctrl+d,pagedown", "page(1)", "Page down"),
    Key("page-up", "ctrl+u,pageup", "page(-1)", "Page up"),
    Key("top", "g,home", "edge(-1)", "First"),
    Key("bottom", "G,end", "edge(1)", "Last"),
    Key("next-host", "right_square_bracket", "host(1)", "Next host"),
    Key("previous-host", "left_square_bracket", "host(-1)", "Previous host"),
    Key("leave", "escape", "leave", "Clear the filter, or go back"),
    Key("fleet.open", "enter", "app.open", "Open the host", "fleet", hint="host"),
    Key("fleet.sort", "s", "sort", "Sort by the next column", "fleet", hint="sort"),
    Key("fleet.reverse", "r", "reverse", "Reverse the order", "fleet", hint="reverse"),
    Key("fleet.group", "o", "group", "Group by nothing, state, profile", "fleet", hint="group"),
    Key("host.diagnose", "d", "app.diagnose", "Diagnose: why is it slow, or down?", "host", hint="diagnose"),
    Key("journal.mode", "m", "mode", "Filter as exact, fuzzy, regex", "journal", hint="mode"),
    Key("journal.priority", "p", "priority", "Least priority shown", "journal", hint="priority"),
    Key("journal.pause", "space", "pause", "Pause, follow", "journal", hint="pause"),
    Key("journal.next-error", "e", "error(1)", "Next error", "journal", hint="error"),
    Key("journal.previous-error", "E", "error(-1)", "Previous error", "journal"),
    Key("journal.pager", "v", "pager", "Open in $PAGER", "journal", hint="pager"),
    Key("journal.copy", "y", "copy", "Copy the line", "journal"),
    Key("journal.left", "h,left", "scroll(-1)", "Scroll left", "journal"),
    Key("journal.right", "l,right", "scroll(1)", "Scroll right", "journal"),
    Key("ab.new", "n", "app.new_run", "New comparison", "ab", hint="new"),
    Key("ab.open", "enter", "app.open_run", "Show the report of the run", "ab"),
)


def default_file() -> Path:
    """Return where a person's own keys are."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Path(os.environ.get("KDOPS_KEYS") or folder / "kdops" / "keys.toml")


def load(path: Path | None) -> Mapping[str, str]:
    """Return name → keys from a file (TOML: `[keys]`, then `"fleet.sort" = "o"`); empty if there is no file.

    Raises UsageError for a file that is no such thing, an unknown name, or a key with two meanings at once.
    """
    if path is None or not path.exists():
        return {}
    try:
        require_regular(path)
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the keys in {path} cannot be read", cause=str(error), remedy='write [keys], then name = "key"'
        ) from error
    table = raw.get("keys", {})
    known = [key.name for key in KEYS]
    if not isinstance(table, dict) or set(raw) - {"keys"}:
        raise UsageError(
            f"{path} has no table [keys]", cause=f"it has {', '.join(raw)}", remedy="write [keys] first"
        )
    table = _flat(table)
    for name, keys in table.items():
        if name not in known:
            raise UsageError(
                f"{path}: no command is named {name!r}{nearest(name, known)}",
                cause=f"known: {', '.join(known)}",
                remedy="correct the name; ? in kdops tui shows them",
            )
        if not isinstance(keys, str) or not keys.strip():
            raise UsageError(
                f"{path}: {name} must be a key",
                cause=f"it is {keys!r}",
                remedy='for example "ctrl+o" or "o,f5"',
            )
        if wrong := [one.strip() for one in keys.split(",") if one.strip() not in names()]:
            raise UsageError(
                f"{path}: {wrong[0]!r} is no key for {name}{nearest(wrong[0], names())}",
                cause=f"not free to use: {', '.join(_RESERVED)}",
                remedy="write it as f9, ctrl+o, slash, G; ? in kdops tui shows the names in use",
            )
    check(table, str(path))
    return table


def check(changed: Mapping[str, str], where: str) -> None:
    """Raise UsageError if a key would mean two things in one view."""
    for view in VIEWS:
        taken: dict[str, str] = {}
        for key in KEYS:
            if key.view not in ("", view):
                continue
            for one in changed.get(key.name, key.keys).split(","):
                other = taken.setdefault(one.strip(), key.name)
                if other != key.name:
                    raise UsageError(
                        f"{where}: the key {one.strip()} would mean {other} and {key.name}",
                        cause=f"both hold in the {view} view",
                        remedy=f'give one of them another key, for example {key.name} = "f9"',
                    )


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """TOML reads a bare fleet.sort = "o" as a table in a table."""
    found: dict[str, str] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value  # type: ignore[assignment]
    return found


def of(name: str, changed: Mapping[str, str]) -> str:
    """Return the first key of a command."""
    return changed.get(name, next(key.keys for key in KEYS if key.name == name)).split(",")[0]


def by_key(changed: Mapping[str, str]) -> dict[tuple[str, str], Key]:
    """Return (view, key) → command."""
    return {
        (view, one.strip()): key
        for key in KEYS
        for view in VIEWS
        if key.view in ("", view)
        for one in changed.get(key.name, key.keys).split(",")
    }
