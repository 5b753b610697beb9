"""Command line of the guard: one JSON document on stdout, exit codes of `kdops.errors.ExitCode`."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kdops.errors import ExitCode, KdopsError, UsageError
from kdops.guard import release, transaction
from kdops.guard.checks import ask, gpus
from kdops.guard.context import Context
from kdops.guard.drift import drift
from kdops.guard.preflight import check, preflight, refuse
from kdops.guard.prune import prune
from kdops.guard.request import parse
from kdops.guard.tick import tick

_STEPS: dict[str, Callable[[Context, str], dict[str, Any]]] = {
    "uploading": transaction.uploading,
    "upload-done": transaction.upload_done,
    "switch": transaction.switch,
    "start": transaction.start,
    "wait": transaction.wait,
    "smoke": transaction.smoke,
    "commit": transaction.commit,
}


def status(ctx: Context) -> dict[str, Any]:
    """Return committed releases, the open transaction with its lease, the last outcome, the unit."""
    state = ctx.store.load()
    serving, txn = state.serving, state.transaction
    unit = serving and ctx.systemd.show(serving.unit)
    return {
        "committed": [asdict(c) for c in state.committed],
        "transaction": txn and {**asdict(txn), "lease_left": round(ctx.leases.left(txn), 1)},
        "outcome": state.outcome and asdict(state.outcome),
        "unit": unit and asdict(unit),
        "loads": transaction.loads(ctx),
    }


def inspect(ctx: Context, service: str) -> dict[str, Any]:
    """Return `status` and what a plan compares: drift, the guard's own digest, the digest of the API key."""
    serving = ctx.store.load().serving
    return {
        **status(ctx),
        "drift": drift(ctx, ctx.store.load()),
        "manifest": release.manifest(ctx.layout, serving.release)
        if serving and not serving.adopted
        else None,
        "guard": _digest(ctx.layout.guard),
        "api_key": _digest(ctx.layout.api_key(service)),
        "releases": sorted(p.name for p in ctx.layout.releases.glob("[!.]*")),
        "venvs": sorted(p.name for p in ctx.layout.venvs.glob("*") if (p / "bin/python").exists()),
    }


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _stdin() -> Any:
    try:
        return json.loads(sys.stdin.read())
    except ValueError as error:
        raise UsageError(
            "the guard was called wrongly", cause=f"stdin is no JSON: {error}", remedy="use the playbooks"
        ) from error


def _preflight(ctx: Context) -> dict[str, Any]:
    refuse(preflight(ctx, ask.parse(_stdin())))
    return {"problems": []}


def _run(ctx: Context, arguments: argparse.Namespace) -> dict[str, Any]:
    command = arguments.command
    if command == "heartbeat":
        return transaction.heartbeat(ctx, arguments.id, arguments.seconds)
    if command == "status":
        return status(ctx)
    if command == "inspect":
        return inspect(ctx, arguments.service)
    if command == "preflight":
        return _preflight(ctx)
    if command == "free-gpus":
        return {"holders": gpus.settle(arguments.unit, arguments.seconds)}
    if command == "check":
        return check(ctx, ask.parse(_stdin()))
    request = parse(_stdin()) if command == "begin" else None
    with ctx.store.exclusive(wait=command != "tick") as held:
        if not held:
            return {"busy": True}
        if request is not None:
            return transaction.begin(ctx, request)
        if command == "tick":
            return tick(ctx)
        if command == "prune":
            return prune(ctx, delete=arguments.delete)
        if command == "restore":
            return transaction.restore(ctx, arguments.id, arguments.reason, arguments.title, arguments.remedy)
        return _STEPS[command](ctx, arguments.id)


def _unexpected(failure: Exception) -> KdopsError:
    """The client reads one document whatever happens: a full disk, a read-only folder, a bug."""
    where = traceback.extract_tb(failure.__traceback__)[-1]
    remedy = "report this bug"
    if isinstance(failure, OSError):
        remedy = "see to that file or file system on the host (full, read-only?), then try again"
    return KdopsError(
        "the guard on the host failed",
        cause=f"{type(failure).__name__}: {failure}",
        remedy=f"{remedy}; `kdops status HOST` tells what serves",
        evidence=(f"{Path(where.filename).name}:{where.lineno} in {where.name}",),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kdops_guard", description="The host side of a kdops deploy.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("begin", "preflight", "check", "tick"):
        commands.add_parser(name)
    for name in (*_STEPS, "heartbeat", "restore"):
        commands.add_parser(name).add_argument("--id", required=True)
    commands.choices["heartbeat"].add_argument("--seconds", type=float, required=True)
    commands.choices["restore"].add_argument("--reason", default="the client asked for it")
    for words in ("--title", "--remedy"):
        commands.choices["restore"].add_argument(words, default="")
    commands.add_parser("free-gpus").add_argument("--unit", required=True)
    commands.choices["free-gpus"].add_argument("--seconds", type=float, default=60.0)
    commands.add_parser("status")
    commands.add_parser("inspect").add_argument("--service", required=True)
    commands.add_parser("prune").add_argument("--delete", action="store_true")
    return parser


def main(argv: Sequence[str] | None = None, ctx: Context | None = None) -> int:
    """Run one command."""
    arguments = _parser().parse_args(argv)
    try:
        document, code = {"ok": True, **_run(ctx or Context(), arguments)}, ExitCode.OK
    except Exception as failure:
        error = failure if isinstance(failure, KdopsError) else _unexpected(failure)
        code = error.code
        words = {"title": error.title, "cause": error.cause, "remedy": error.remedy, "code": int(code)}
        document = {"ok": False, "error": {**words, "evidence": list(error.evidence)}}
        print(f"kdops_guard: {error.title}: {error.cause}", file=sys.stderr)
    print(json.dumps(document))
    return code
