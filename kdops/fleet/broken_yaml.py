"""Where and why a file is no YAML, in the words of the YAML library: Ansible names the line only for some."""

from __future__ import annotations

from pathlib import Path

import yaml

from kdops.fleet.model import Origin

_BLOCK = "while parsing a block"
"""Its context is where the whole block began; that of a bracket, a quote or a key is the one left open."""


def problem(path: Path, shown: str) -> tuple[Origin, str] | None:
    """Return the place, named `shown`, and what is wrong there; None if the file is YAML or is not read."""
    try:
        yaml.compose(path.read_bytes(), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        opened = error.context_mark if not (error.context or _BLOCK).startswith(_BLOCK) else None
        mark = opened or error.problem_mark
        words = ": ".join(part for part in (error.context, error.problem) if part)
        return Origin(shown, mark.line + 1 if mark else None), words
    except (yaml.YAMLError, RecursionError) as error:
        return Origin(shown), " ".join(str(error).split())
    except OSError:
        return None
    return None
