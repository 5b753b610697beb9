"""The launcher's own settings, from the environment that systemd gives it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kdtree_engine.options import RefusedError

DRAIN_SECONDS = "KDTREE_DRAIN_SECONDS"
PHASE_SECONDS = "KDTREE_PHASE_SECONDS"


@dataclass(frozen=True)
class Settings:
    """drain_seconds: how long a stop waits for running requests. phase_seconds: the longest a load phase may
    take.

    credentials: systemd's credentials folder; runtime: where the status page lies; watchdog_seconds:
    WatchdogSec, or None without a watchdog.
    """

    drain_seconds: float
    phase_seconds: float
    credentials: Path | None
    runtime: Path
    watchdog_seconds: float | None


def from_environment(environ: Mapping[str, str]) -> Settings:
    """Read the settings (systemd.exec(5), sd_watchdog_enabled(3)).

    Raises RefusedError for a value that is no time.
    """
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    runtime = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    watchdog = environ.get("WATCHDOG_USEC")
    return Settings(
        drain_seconds=_seconds(environ, DRAIN_SECONDS, 120.0),
        phase_seconds=_seconds(environ, PHASE_SECONDS, 1800.0),
        credentials=Path(credentials) if credentials else None,
        runtime=Path(runtime or tempfile.gettempdir()),
        watchdog_seconds=_number("WATCHDOG_USEC", watchdog) / 1e6 if watchdog else None,
    )


def api_key(credentials: Path | None) -> str | None:
    """The key in systemd's credential `api_key`; None without one.

    Raises RefusedError when it is unusable.
    """
    path = credentials / "api_key" if credentials else None
    if path is None or not path.exists():
        return None
    try:
        key = path.read_text("ascii").strip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(
            f"the credential api_key cannot be read as ASCII text: {type(error).__name__}"
        ) from None
    if not key or not key.isprintable() or " " in key:
        raise RefusedError("the credential api_key must be one line of printable characters without spaces")
    return key


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    return default if text is None else _number(name, text)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise RefusedError(f"{name} is {text!r}; it takes a number of at least 0")
    return value
