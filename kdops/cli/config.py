"""`kdops hosts`, `kdops config`, `kdops render`: what is configured, where, and what it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kdops.cli.output import emit, emit_json, say
from kdops.errors import UsageError
from kdops.text import columns

if TYPE_CHECKING:
    from kdops.fleet import EngineConfig, Fleet, Host

HOST = typer.Argument(..., metavar="HOST", help="A host, a group of one, or an inventory of one.")
INVENTORY = typer.Option(None, "-i", "--inventory", help="Ansible inventory: a file, or a folder of files.")
PROFILE = typer.Option(None, "--profile", help="Profile (arm); the host's engine_profile unless given.")
SET = typer.Option(None, "--set", metavar="KEY=VALUE", help="Override one setting this once; repeatable.")
JSON = typer.Option(False, "--json", help="One JSON document on stdout.")
OUT = typer.Option(None, "--out", help="Write the files into this folder instead of showing them.")


def register(app: typer.Typer) -> None:
    """Add the three commands."""
    app.command()(hosts)
    app.command()(config)
    app.command()(render)


def overrides(pairs: Sequence[str] | None) -> dict[str, str]:
    """Return key → text of the `--set KEY=VALUE` options. Raises UsageError for one without `=`."""
    for pair in pairs or ():
        if "=" not in pair:
            raise UsageError(
                f"--set {pair!r} has no value",
                cause="it must be KEY=VALUE",
                remedy="for example --set engine_page_size=16",
            )
    return dict(pair.split("=", 1) for pair in pairs or ())


def repeated(pairs: Sequence[str] | None) -> list[str]:
    """Return the words of the `--set` options, for a command told to the user."""
    return [word for pair in pairs or () for word in ("--set", pair)]


def load(inventory: Path | None) -> Fleet:
    """Load the fleet and pass on what Ansible found odd."""
    from kdops import fleet

    found = fleet.load(inventory)
    for warning in found.warnings:
        say(f"warning: {warning}")
    return found


def hosts(inventory: Path | None = INVENTORY, as_json: bool = JSON) -> None:
    """List the hosts of the inventories in use."""
    rows = [_host_row(host) for host in load(inventory).hosts]
    if as_json:
        emit_json(rows)
        return
    header = ("HOST", "INVENTORY", "GROUPS", "ADDRESS", "GPU", "SERVICE", "PROFILE")
    emit("\n".join(columns([header, *([str(cell) for cell in _cells(row)] for row in rows)])))


def config(
    host: str = HOST,
    profile: str | None = PROFILE,
    changes: list[str] | None = SET,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Show every effective setting: value, origin, flag, what a change costs; and whether it will fit."""
    from kdops import fleet
    from kdops.fleet.values import as_text

    found = load(inventory).one(host)
    settings = fleet.engine_config(found, profile, overrides(changes))
    rows = _setting_rows(settings)
    memory = _memory(found, settings)
    if as_json:
        emit_json({"host": found.name, "profile": settings.profile, "settings": rows, "memory": memory})
        return
    emit(f"{found.name}, profile {settings.profile}, {_gpus(found.gpu_count, found.gpu.name)}\n")
    header = ("KEY", "VALUE", "ORIGIN", "FLAG", "CHANGE")
    shown = ("value", "origin", "flag", "change")
    emit("\n".join(columns([header, *([_name(row), *(as_text(row[key]) for key in shown)] for row in rows)])))
    unused = not all(row["used"] for row in rows)
    legend = "(in parentheses: without bearing in this profile)\n" if unused else ""
    emit(f"\n{legend}{_memory_words(memory)}")


def render(
    host: str = HOST,
    profile: str | None = PROFILE,
    changes: list[str] | None = SET,
    inventory: Path | None = INVENTORY,
    out: Path | None = OUT,
) -> None:
    """Render the release: unit, launch.yaml, engine.env, manifest.json."""
    from kdops import fleet
    from kdops.deploy.engine import engine_digest
    from kdops.locks import lock_digest, lock_file
    from kdops.render import render as files_of

    found = load(inventory).one(host)
    settings = fleet.engine_config(found, profile, overrides(changes))
    release = files_of(settings, found, engine_digest(), lock_digest(lock_file(settings.lock)))
    if out is None:
        for file in release.files:
            emit(f"# ===== {file.path} (mode {file.mode:04o}, release {release.release_id})")
            emit(file.content.decode().rstrip("\n") + "\n")
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        for file in release.files:
            path = out / file.path
            path.touch(mode=file.mode)
            path.chmod(file.mode)
            path.write_bytes(file.content)
    except OSError as error:
        raise UsageError(
            f"cannot write to {out}",
            cause=f"{error.filename or out}: {error.strerror}",
            remedy="name a folder that you may write to, on a disk with room",
        ) from None
    say(f"release {release.release_id}: {len(release.files)} files in {out}")
    if others := {path.name for path in out.iterdir()} - {file.path for file in release.files}:
        say(f"warning: {out} holds {len(others)} other files too, such as {min(others)}")


def _host_row(host: Host) -> dict[str, Any]:
    from kdops.fleet.profiles import DEFAULT_PROFILE

    return {
        "host": host.name,
        "inventory": str(host.inventory),
        "groups": list(host.groups),
        "address": host.ssh.address,
        "gpu": host.gpu.id,
        "gpu_count": host.gpu_count,
        "service": host.service,
        "profile": host.variables.get("engine_profile", DEFAULT_PROFILE),
    }


def _gpus(count: int, name: str) -> str:
    return f"{count} × {name}" if count else name


def _cells(row: dict[str, Any]) -> Iterable[str]:
    gpu = _gpus(row["gpu_count"], row["gpu"])
    groups = ",".join(row["groups"]) or "-"
    return row["host"], row["inventory"], groups, row["address"], gpu, row["service"], row["profile"]


def _setting_rows(settings: EngineConfig) -> list[dict[str, Any]]:
    from kdops.fleet import SETTINGS, redacted
    from kdops.fleet.changes import applies
    from kdops.fleet.settings import values

    plain = values(settings)
    shown = redacted(plain)
    return [
        {
            "key": f"engine_{name}",
            "value": shown[name],
            "origin": str(settings.origins[name]),
            "flag": row.flag or row.env,
            "used": applies(name, plain),
            "change": row.effect.value,
            "doc": row.doc,
        }
        for name, row in SETTINGS.items()
    ]


def _memory(host: Host, settings: EngineConfig) -> dict[str, Any] | None:
    import dataclasses

    from kdops.fleet.memory import foresee

    found = foresee(settings, host)
    return dataclasses.asdict(found) if found else None


def _memory_words(memory: dict[str, Any] | None) -> str:
    from kdops.fleet.values import as_text

    if memory is None:
        return "memory: not predicted; the model's shape is not known here (set engine_model_facts)"
    cell = f"KV {memory['kv_bytes_per_token']:,} + drafter {memory['draft_kv_bytes_per_token']:,} B a token"
    if memory["pool_bytes"] is None:
        pool = "pool as engine_max_total_tokens says" if memory["tokens"] else "pool not predicted"
        return f"memory: {cell}; {pool}: {as_text(memory['tokens'])} tokens"
    return (
        f"memory, each GPU: weights {memory['weight_bytes'] / 1e9:.1f} GB, "
        f"KV pool {memory['pool_bytes'] / 1e9:.1f} GB = {memory['tokens']:,} tokens ({cell}), "
        f"{memory['reserve_bytes'] / 1e9:.1f} GB left for activations and graphs\n  from "
        + "\n  from ".join(memory["assumptions"])
    )


def _name(row: dict[str, Any]) -> str:
    return str(row["key"]) if row["used"] else f"({row['key']})"
