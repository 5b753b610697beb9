"""Can the GPUs talk to one another? A short all-reduce between them, where nobody holds them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kdops.guard.checks import nvidia
from kdops.guard.checks.ask import Question
from kdops.guard.checks.row import Row, State
from kdops.guard.context import Context

_SECONDS = 20
_MARGIN = 40


def rows(ctx: Context, asked: Question) -> Iterator[Row]:
    if asked.gpus < 2:
        return
    venv = ctx.layout.venvs / asked.venv
    if not (venv / "bin" / "python").exists():
        yield Row("collective", State.NOT_RUN, "the Python environment is not on the host yet")
    elif not nvidia.present():
        yield Row("collective", State.NOT_RUN, "the host has no NVIDIA driver")
    elif nvidia.holders():
        yield Row("collective", State.NOT_RUN, "the GPUs are in use")
    elif asked.collective:
        yield from judge(_run(venv / "bin" / "python", asked))


def judge(report: dict[str, Any]) -> Iterator[Row]:
    """Return the row for the test's report (kdtree_engine.collective)."""
    told = str(report.get("words", ""))
    if report.get("ok"):
        slow = bool(report.get("slow"))
        remedy = str(report.get("remedy", "")) if slow else ""
        yield Row("collective", State.WARN if slow else State.OK, told, remedy)
        return
    remedy = str(report.get("remedy") or "look at `nvidia-smi topo -m`; NCCL_DEBUG=INFO tells more")
    yield Row("collective", State.FAIL, told or "the test did not end", remedy)


def settings(environment: str) -> dict[str, str]:
    """Return what the text of an engine.env says about NCCL and the GPUs it may see."""
    found = re.findall(r'^(NCCL_[A-Z0-9_]+|CUDA_VISIBLE_DEVICES)="?([^"\n]*)"?$', environment, re.MULTILINE)
    return dict(found)


def _run(python: Path, asked: Question) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kdops-collective.") as folder:
        script = Path(folder) / "collective.py"
        script.write_text(asked.collective)
        argv = [str(python), "-B", str(script), "--json", "--seconds", str(_SECONDS)]
        argv += ["--gpus", str(asked.gpus)]
        said = ""
        try:
            done = subprocess.run(
                argv,
                check=False,
                capture_output=True,
                text=True,
                timeout=2 * _SECONDS + _MARGIN,
                env={**os.environ, **settings(asked.environment)},
            )
            said = done.stderr
            found = json.loads(done.stdout.strip().splitlines()[-1])
        except subprocess.TimeoutExpired:
            return {"ok": False, "words": f"the test of {asked.gpus} GPUs did not end and was stopped"}
        except (OSError, ValueError, IndexError) as error:
            words = said.strip().splitlines()[-1:] or [str(error)]
            return {"ok": False, "words": f"the test cannot run: {words[0][:300]}"}
    return found if isinstance(found, dict) else {}
