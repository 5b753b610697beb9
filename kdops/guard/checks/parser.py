"""The options of the engine that is on this host, from its own parser; kept per environment until reboot."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from kdops.guard.checks.ask import Question

_SECONDS = 60
_ASK = """
import argparse, json, sglang
from sglang.srt.server_args import ServerArgs
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
found = {
    name: {"switch": action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction),
           "choices": list(action.choices) if action.choices else None}
    for action in parser._actions for name in action.option_strings
}
print(json.dumps({"version": sglang.__version__, "options": found}, default=str))
"""


def options(venv: Path, notes: Path, asked: Question) -> dict[str, Any] | None:
    """Return {version, options}, None if the environment is missing or cannot tell. notes: where answers are
    kept.
    """
    python, note = venv / "bin" / "python", notes / f"{venv.name}.json"
    if not python.exists():
        return None
    try:
        found: dict[str, Any] | None = json.loads(note.read_text())
    except (OSError, ValueError):
        found = _ask(python, cpu=asked.settings.get("device") == "cpu")
        if found is not None:
            notes.mkdir(parents=True, exist_ok=True)
            note.write_text(json.dumps(found))
    return found


def _ask(python: Path, *, cpu: bool) -> dict[str, Any] | None:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    environment |= {"SGLANG_USE_CPU_ENGINE": "1"} if cpu else {}
    try:
        done = subprocess.run(
            [str(python), "-B", "-c", _ASK],
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            env=environment,
        )
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("options"), dict) else None
