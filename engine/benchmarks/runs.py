"""What the scripts here share: common options, the results file, the prompts of the test texts."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import itertools
import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from servers import ARMS, PAIR, Wave, describe, stop_in_time
from transformers import AutoTokenizer

PROMPTS = 8  # of each context length
HIDDEN = ("runs_ms", "counts")  # in the file only


class Results:
    """The results file, rewritten after every cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cells: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def put(self, name: str, value: dict[str, Any]) -> None:
        self.cells[name] = value
        self._path.write_text(json.dumps(self.cells, indent=1) + "\n")
        print(name, {key: value[key] for key in value if key not in HIDDEN}, flush=True)


def cell(text: str) -> tuple[int, int]:
    """Read CONTEXT/REQUESTS. Raises ValueError, which argparse words."""
    context, requests = text.split("/")
    return int(context), int(requests)


def options(
    doc: str | None, *, arms: Sequence[str] = (), cells: Sequence[str] = (), waits: bool = True
) -> argparse.ArgumentParser:
    """The parser with what every script takes. arms, cells: those that it runs unless told. waits: it can
    hold its servers back (`serving`).
    """
    lines = (doc or "").strip().splitlines()
    parser = argparse.ArgumentParser(description=lines[0] if lines else None)
    parser.add_argument("results", type=Path)
    if arms:
        names = [arm.name for arm in ARMS]
        parser.add_argument("--arms", nargs="+", default=list(arms), choices=names)
    if cells:
        default = [cell(text) for text in cells]
        parser.add_argument("--cells", nargs="+", default=default, type=cell, metavar="CONTEXT/REQUESTS")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel ranks of a server")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: try the script out")
    parser.add_argument("--plan", action="store_true", help="print the servers' command lines and end")
    if waits:
        help_ = "start the servers now and ask them once this file exists"
        parser.add_argument("--after", type=Path, metavar="FILE", help=help_)
    parser.add_argument("--logs", type=Path, help="folder for the servers' logs")
    parser.add_argument("--commit", default="", help="noted in the results")
    parser.add_argument("--deadline", type=float, default=math.inf, help="stop before this time (time.time)")
    return parser


@contextlib.contextmanager
def running(asked: argparse.Namespace) -> Iterator[tuple[Results, Path]]:
    """The results file and a folder for logs and models, until the deadline."""
    if math.isfinite(asked.deadline):
        stop_in_time(asked.deadline)
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = Results(asked.results)
        results.put("about", {"commit": asked.commit, "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}"})
        yield results, folder


def planned(waves: Sequence[Wave]) -> int:
    """Print what would be started; exit code 0."""
    for number, wave in enumerate(waves, 1):
        for arm, setup in wave:
            print(f"{number} {arm.name}/{setup}: {describe(arm, setup)}")
    return 0


def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(PAIR / "target")


@functools.cache
def prompts(context: int) -> list[list[int]]:
    """PROMPTS prompts of `context` tokens each, from the test texts of all kinds."""
    encode = tokenizer()
    texts = list(json.loads((PAIR / "prompts.json").read_text())["test"].values())
    made = []
    for number in range(PROMPTS):
        kind = texts[number % len(texts)]
        ids: list[int] = []
        for prompt in itertools.islice(itertools.cycle(kind), number * 5, None):
            ids += encode(prompt["text"])["input_ids"]
            if len(ids) >= context:
                break
        made.append(ids[:context])
    return made


def speculation(metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Verify steps of these answers and their acceptance length, None without any."""
    steps = sum(meta.get("spec_verify_ct", 0) for meta in metas)
    accepted = sum(meta.get("spec_num_correct_drafts", 0) for meta in metas)
    return {"verify_steps": steps, "acceptance_length": round(1 + accepted / steps, 3) if steps else None}
