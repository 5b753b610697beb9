"""Run a check: offline in a moment, on the host over one SSH connection."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kdops.check import settings
from kdops.check.report import Report, refusal, report
from kdops.deploy import engine, guard_call
from kdops.deploy.bundle import Bundle, needs
from kdops.deploy.pack import guard_pyz
from kdops.deploy.progress import Display, Now
from kdops.errors import KdopsError
from kdops.fleet import EngineConfig, Host
from kdops.fleet.settings import PLAIN
from kdops.guard.checks.row import Row, State
from kdops.host import HostConnection

_SECONDS = 200.0
_RUN = """set -e
d=$(mktemp -d -t kdops.XXXXXX); trap 'rm -rf -- "$d"' EXIT
head -c "$1" > "$d/guard.pyz"
/usr/bin/python3 -IB "$d/guard.pyz" check"""


def offline(config: EngineConfig, host: Host) -> Report:
    """Check what needs no host."""
    begun = time.monotonic()
    return report(host.name, config.profile, settings.rows(config, host), time.monotonic() - begun)


def online(config: EngineConfig, host: Host, bundle: Bundle, connection: HostConnection) -> Report:
    """Check everything. Raises UnreachableError, or KdopsError when the host cannot run the guard."""
    begun = time.monotonic()
    answer = ask(connection, question(config, host, bundle))
    rows = [Row(**{**row, "state": State(row["state"])}) for row in answer["rows"]]
    seen = with_configs(config, host, answer)
    rows += [*settings.rows(config, seen), *settings.options(config, answer.get("parser"))]
    return report(host.name, config.profile, rows, time.monotonic() - begun)


def before_deploy(
    host: Host, config: EngineConfig, new: Bundle, options: Sequence[str] = ()
) -> Callable[[Display], None]:
    """Return what checks the host as the first part of a deploy and raises its refusal (exit 5).

    options: the deploy's `--set` words, which its refusal repeats.
    """

    def run(shown: Display) -> None:
        shown.show(Now("lock", f"check {new.release}"))
        with HostConnection(host) as connection:
            found = online(config, host, new, connection)
        for row in found.rows:
            if row.state is State.WARN:
                shown.note(f"[check] {row.found}: {row.remedy}")
        if found.refused:
            raise refusal(found, options)

    return run


def question(config: EngineConfig, host: Host, bundle: Bundle) -> dict[str, Any]:
    """Return the document that the host's side of the check reads (kdops.guard.checks.ask)."""
    assert bundle.files is not None
    files = {file.path: file.content.decode() for file in bundle.files.files}
    need, venv_need = needs(bundle)
    return {
        "manifest": dict(bundle.files.manifest),
        "bytes": need,
        "venv_bytes": venv_need,
        "unit": files[bundle.unit],
        "environment": files["engine.env"],
        "collective": _collective() if config.device == "cuda" and config.tp > 1 else "",
        "adopt": str(host.variables.get("engine_adopted_unit") or ""),
        "cuda": _cuda(bundle.lock),
        "now": time.time(),
    }


def ask(connection: HostConnection, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Send this kdops's own guard, ask it, and leave nothing of it."""
    pyz = guard_pyz()
    argv = ["sh", "-c", _RUN, "sh", str(len(pyz))]
    result = connection.run(argv, stdin=pyz + json.dumps(asked).encode(), timeout=_SECONDS)
    try:
        return guard_call.document(json.loads(result.text))
    except ValueError as error:
        said = result.stderr.decode(errors="replace").strip().splitlines()
        raise KdopsError(
            f"{connection.host.name}: the host cannot be checked",
            cause=said[-1] if said else f"no answer, exit status {result.code}",
            remedy="kdops needs Python 3.11 or newer as /usr/bin/python3 there, and a writable /tmp",
            evidence=tuple(said[-5:-1]),
        ) from error


def with_configs(config: EngineConfig, host: Host, answer: Mapping[str, Any]) -> Host:
    """Return `host` with the facts of the models that are there, not those that the inventory holds."""
    told: dict[str, Any] = {}
    pairs = [("engine_model_facts", config.model)]
    if config.algorithm != PLAIN:
        pairs.append(("engine_draft_facts", config.draft_model or ""))
    for variable, folder in pairs:
        if read := answer["configs"].get(folder):
            weights = answer["weights"].get(folder)
            told[variable] = {"config": read, "source": f"{folder}/config.json on {host.name}"}
            if weights:
                told[variable]["weight_bytes"] = weights
    return dataclasses.replace(host, variables={**host.variables, **told})


def _collective() -> str:
    try:
        return (engine.source() / "kdtree_engine" / "collective.py").read_text()
    except OSError:
        return ""


def _cuda(lock: Path | None) -> int:
    """Return the major version of CUDA that a lock's environment brings, 0 for none."""
    found = re.search(r"^nvidia-cuda-runtime==(\d+)\.", lock.read_text() if lock else "", re.MULTILINE)
    return int(found[1]) if found else 0
