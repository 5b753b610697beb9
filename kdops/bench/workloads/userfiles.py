"""Prompt sets from the user's files: JSONL, OpenAI batch, ShareGPT."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kdops.bench.workloads import sampling
from kdops.bench.workloads.prompts import PromptSet
from kdops.bench.workloads.sampling import Sampling
from kdops.errors import UsageError
from kdops.files import pieces

_MOST_BYTES = 256 * 1024 * 1024
_HALF = re.compile("[\ud800-\udfff]")
_FORMS = 'a line is {"prompt": …}, an OpenAI batch request or a ShareGPT conversation'


def read(path: Path, chosen: Sampling | None = None) -> PromptSet:
    """Return the prompts of `path`, named for the file, with the sampling that its rows name.

    chosen: instead of theirs. Raises UsageError with the line that is wrong.
    """
    if _HALF.search(path.stem):  # it is the set's name, in reports too
        raise _wrong(path, "its name is no UTF-8: rename it")
    try:
        content = bytearray()
        for piece in pieces(path):  # its size says nothing of a pipe
            content += piece
            if len(content) > _MOST_BYTES:
                raise _wrong(path, "it has more than 256 MiB")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(
            f"prompt set {path} cannot be read",
            cause=error.strerror or str(error),
            remedy="name a file of prompts",
        ) from error
    except UnicodeDecodeError as error:
        raise _wrong(path, str(error)) from error
    entries = _entries(path, text)
    prompts = tuple(_prompt(path, number, entry) for number, entry in entries)
    if not prompts:
        raise _wrong(path, "it is empty")
    return PromptSet(path.stem, prompts, sampling=chosen or _sampling(path, entries))


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


def _sampling(path: Path, entries: list[tuple[int, Any]]) -> Sampling:
    """Return what every row says. Raises UsageError where rows differ: a set is measured in one way."""
    rows = [(n, sampling.read(_request(e), f"{path.name}, entry {n}")) for n, e in entries]
    first, common = rows[0]
    for number, other in rows:
        if other != common:
            raise UsageError(
                f"{path.name} mixes kinds of sampling",
                cause=f"entry {first}: {common.words()}; entry {number}: {other.words()}",
                remedy="split the file, or choose one for all with --sampling temperature=…",
            )
    return common


def _request(entry: Any) -> dict[str, Any]:
    """An OpenAI batch row (custom_id, method, url, body) holds the request in its body."""
    entry = entry if isinstance(entry, dict) else {}
    return body if isinstance(body := entry.get("body"), dict) else entry


def _text(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    entry = _request(entry)
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
