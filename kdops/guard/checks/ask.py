"""What a check needs to know of the release to come, as one document from the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kdops.errors import UsageError


@dataclass(frozen=True)
class Question:
    """manifest: of the release. bytes, venv_bytes: disk space of the upload and of an environment to build.

    unit, environment: text of the unit and of engine.env. collective: source of the collective test, empty
    to leave it out. adopt: hand-written unit that the release replaces. cuda: major version of CUDA that the
    environment brings, 0 for none. now: the client's clock, seconds since the epoch.
    """

    manifest: Mapping[str, Any]
    bytes: int = 0
    venv_bytes: int = 0
    unit: str = ""
    environment: str = ""
    collective: str = ""
    adopt: str = ""
    cuda: int = 0
    now: float = 0.0

    @property
    def settings(self) -> Mapping[str, Any]:
        return dict(self.manifest.get("settings") or {})

    @property
    def gpus(self) -> int:
        """How many GPUs the engine takes."""
        return int(self.settings.get("tp", 1)) if self.settings.get("device") == "cuda" else 0

    @property
    def venv(self) -> str:
        """Name of the environment's folder below /opt/kdops/venvs."""
        return str(self.manifest["lock_digest"])[:12]

    @property
    def user(self) -> str:
        return str(self.settings.get("user", "root"))

    @property
    def models(self) -> list[str]:
        return [str(path) for path in self.manifest.get("models", [])]


def parse(raw: Any) -> Question:
    """Raises UsageError for what is no question."""
    try:
        known = {name: raw[name] for name in Question.__dataclass_fields__ if name in raw}
        if not isinstance(known["manifest"], dict):
            raise TypeError("manifest is no object")
        known |= {name: int(known[name]) for name in ("bytes", "venv_bytes", "cuda") if name in known}
        return Question(**known)
    except (TypeError, KeyError, ValueError) as error:
        raise UsageError(
            "the guard was called wrongly", cause=f"no question: {error}", remedy="use the playbooks"
        ) from error
