"""`kdops generate`: one real request through the SSH connection."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kdops.cli.config import HOST, INVENTORY, JSON, load
from kdops.cli.output import emit, emit_json, say
from kdops.errors import ExitCode, KdopsError, UsageError

if TYPE_CHECKING:
    from kdops.host.status import HostStatus
    from kdops.serving import Generation

PROMPT = typer.Argument(..., metavar="PROMPT", help="The text to go on from.")
TOKENS = typer.Option(128, "--max-new-tokens", min=1, help="Stop after this many tokens.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(generate)


def generate(
    name: str = HOST,
    prompt: str = PROMPT,
    max_new_tokens: int = TOKENS,
    inventory: Path | None = INVENTORY,
    as_json: bool = JSON,
) -> None:
    """Send one prompt to the host's engine (greedy) and show the text, tokens/s and acceptance length."""
    from kdops.host import HostConnection, probe
    from kdops.host.credentials import api_key
    from kdops.serving import client

    if not prompt:
        raise UsageError("the prompt is empty", cause="SGLang needs a token", remedy="give some text")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            "the prompt is no text", cause=f"{error.reason}: it is no UTF-8", remedy="give UTF-8"
        ) from None
    with HostConnection(load(inventory).one(name)) as connection:
        status = probe(connection)
        engine = status.engine
        if status.unit.active != "active" or engine is None:
            raise not_serving(status)
        with connection.forward(engine.port, engine.address) as local:
            key = api_key(connection)
            answer = client.generate(local, prompt, max_new_tokens=max_new_tokens, api_key=key)
    if as_json:
        emit_json(_document(answer))
        return
    emit(answer.text)
    say(_summary(answer))


def not_serving(status: HostStatus) -> KdopsError:
    """Return the error for an engine that does not serve now, or was not seen to."""
    unit, host, code = status.unit, status.host, ExitCode.FAILED
    if not unit.exists:
        why, remedy, code = unit.absence, f"kdops deploy {host}", ExitCode.REFUSED
        if unit.load == "masked":
            remedy += " writes the unit again, where it should serve"
    elif unit.active in ("activating", "deactivating", "reloading"):
        why, remedy = f"the service is {unit.active} ({unit.sub})", f"watch it: kdops status {host}"
    elif unit.active == "active":
        said = (status.errors or {}).get("engine", "no word")
        why, remedy = f"its HTTP side was not read: {said}", f"see kdops status {host}, then try again"
    else:
        why, remedy = f"the service is {unit.active}", f"kdops start {host}; why it ended: kdops logs {host}"
    return KdopsError(f"{host}: the engine does not serve", cause=why, remedy=remedy, code=code)


def _summary(answer: Generation) -> str:
    parts = [f"{answer.completion_tokens} tokens in {answer.seconds:.2f} s"]
    if answer.tokens_per_second is not None:
        parts.append(f"{answer.tokens_per_second:.1f} tokens/s")
    if answer.acceptance:
        parts.append(f"AL {answer.acceptance.length:.2f} over {answer.acceptance.steps} steps")
        parts += [f"INCONSISTENT: {problem}" for problem in answer.acceptance.problems]
    else:
        parts.append("no speculation")
    return ", ".join(parts)


def _document(answer: Generation) -> dict[str, object]:
    return {
        **dataclasses.asdict(answer),
        "tokens_per_second": answer.tokens_per_second,
        "acceptance_length": answer.acceptance.length if answer.acceptance else None,
    }
