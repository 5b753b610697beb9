"""Are the model's files there, whole and consistent?"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kdops.guard.checks.ask import Question
from kdops.guard.checks.row import Row, State

_MOST_HEADER = 100_000_000  # the safetensors format's own limit
_COPY = "copy it there, or correct engine_model/engine_draft_model"
_AGAIN = "copy the file again and compare its checksum with the source's"


def rows(asked: Question) -> Iterator[Row]:
    for path in asked.models:
        if not path.startswith("/"):
            yield Row("model files", State.NOT_RUN, f"{path} is no folder: SGLang downloads it itself")
            continue
        folder, problems = Path(path), list(_problems(Path(path)))
        yield from problems
        if not problems:
            size = weight_bytes(folder)
            yield Row("model files", State.OK, f"{folder}: {size / 1e9:.2f} GB of weights, every file whole")


def _problems(folder: Path) -> Iterator[Row]:
    def wrong(text: str, remedy: str, title: str = "") -> Row:
        return Row("model files", State.FAIL, text, remedy, title)

    if not (folder / "config.json").exists():
        what = f"{folder}/config.json" if folder.is_dir() else str(folder)
        yield wrong(f"{what} does not exist", _COPY, "a model is not on the host")
        return
    if config(folder) is None:
        yield wrong(f"{folder}/config.json cannot be read as JSON", _AGAIN)
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        if text := damage(file):
            yield wrong(f"{file} {text}", _AGAIN)
    if lost := sorted(_indexed(folder) - {file.name for file in files}):
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        names = ", ".join(lost[:3])
        yield wrong(f"{folder} lacks {names}{more}, which its index names", "copy the missing files")
    if not files and not any(folder.glob("*.bin")) and not any(folder.glob("*.gguf")):
        yield wrong(f"{folder} holds no weights", _COPY)


def damage(file: Path) -> str:
    """Compare a safetensors file's size with its header (8 bytes length, JSON, tensors); "" if whole."""
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            first = stream.read(8)
            if len(first) < 8:
                return f"is cut off: {size} bytes"
            (length,) = struct.unpack("<Q", first)
            if length > _MOST_HEADER:
                return "is no safetensors file: its header length makes no sense"
            if size < 8 + length:
                return f"is cut off: {size} bytes, its header alone ends at {8 + length}"
            header = json.loads(stream.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        wanted = 8 + length + max(ends, default=0)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        return f"has a damaged header: {type(error).__name__}"
    if size != wanted:
        return f"has {size} bytes, its header says {wanted}" + (": it is cut off" if size < wanted else "")
    return ""


def config(folder: Path) -> dict[str, Any] | None:
    """Return the model's config.json, None if it is no JSON object."""
    try:
        read = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def weight_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _indexed(folder: Path) -> set[str]:
    try:
        read = json.loads((folder / "model.safetensors.index.json").read_text())
        return set(map(str, read["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return set()
