"""Prompt sets from the user's files: JSONL, OpenAI batch, ShareGPT."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kdops.bench.workloads.prompts import PromptSet
from kdops.errors import UsageError

_MOST_BYTES = 256 * 1024 * 1024
_HALF = re.compile("[\ud800-\udfff]")
_FORMS = 'a line is {"prompt": …}, an OpenAI batch request or a ShareGPT conversation'


def read(path: Path) -> PromptSet:
    """Return the prompts of `path`, named for the file. Raises UsageError with the line that is wrong."""
    try:
        with path.open("rb") as file:  # its size says nothing of a device or a pipe
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise _wrong(path, "it has more than 256 MiB")
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, str(error)) from error
    prompts = tuple(_prompt(path, number, entry) for number, entry in _entries(path, text))
    if not prompts:
        raise _wrong(path, "it is empty")
    return PromptSet(path.stem, prompts)


def _entries(path: Path, text: str) -> list[tuple[int, Any]]:
    """ShareGPT is one JSON list; the others hold one document a line."""
    try:
        if text.lstrip().startswith("["):
            return list(enumerate(json.loads(text), 1))
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    except (ValueError, RecursionError) as error:
        raise _wrong(path, str(error)) from error
    return [(number, _line(path, number, line)) for number, line in lines]


def _line(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"line {number} is no JSON: {error}") from error


def _prompt(path: Path, number: int, entry: Any) -> str:
    found = _text(entry)
    if not isinstance(found, str) or not found.strip():
        raise _wrong(path, f"entry {number} has no prompt")
    if _HALF.search(found):
        raise _wrong(
            path, f"entry {number} holds half a character (a lone surrogate), which no tokenizer takes"
        )
    return found


def _text(entry: Any) -> Any:
    if isinstance(entry, str) or not isinstance(entry, dict):
        return entry
    if isinstance(body := entry.get("body"), dict):  # OpenAI batch: custom_id, method, url, body
        entry = body
    if isinstance(turns := entry.get("messages"), list):
        return _joined(_first(turns, "role", "user", "content"))
    if isinstance(turns := entry.get("conversations"), list):
        return _first(turns, "from", "human", "value")
    return entry.get("prompt", entry.get("text"))


def _first(turns: list[Any], who: str, speaker: str, what: str) -> Any:
    spoken = (turn.get(what) for turn in turns if isinstance(turn, dict) and turn.get(who) == speaker)
    return next(spoken, None)


def _joined(content: Any) -> Any:
    """OpenAI's content is a text, or a list of parts; parts that are no text (pictures) cannot be sent."""
    if not isinstance(content, list):
        return content
    found = (part.get("text") for part in content if isinstance(part, dict))
    texts = [text for text in found if isinstance(text, str)]
    return "".join(texts) if len(texts) == len(content) else None


def _wrong(path: Path, cause: str) -> UsageError:
    return UsageError(f"{path.name} is no prompt set", cause=cause, remedy=_FORMS)
