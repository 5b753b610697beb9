"""The file with the engine's API key, on the operator's machine."""

from __future__ import annotations

import re
from pathlib import Path

from kdops.errors import UsageError

_BYTES = 4096


def usable(name: str) -> Path:
    """Return the path of a file that holds one key: printable ASCII, as an HTTP header can carry (RFC 9110).

    Raises UsageError for anything else; a device or pipe is not read, as every step reads the file again.
    """
    path = Path(name).expanduser()
    try:
        if path.exists() and not path.is_file():
            raise _refused("is no file", str(path))
        with path.open("rb") as file:
            key = file.read(_BYTES + 1).strip()
    except (OSError, RuntimeError) as error:  # RuntimeError: ~user of nobody
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused("cannot be read", f"{path}: {cause}") from error
    if not key:
        raise _refused("is empty", str(path))
    if len(key) > _BYTES or not re.fullmatch(rb"[\x21-\x7e]+", key):
        raise _refused("holds no key", f"{path}: a key is one line of printable ASCII without spaces")
    return path


def _refused(what: str, cause: str) -> UsageError:
    remedy = "correct engine_api_key_file, or write the key there (mode 0600) and nothing else"
    return UsageError(f"the API key file {what}", cause=cause, remedy=remedy)
