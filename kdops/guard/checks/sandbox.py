"""The release's own [Service] body, with a probe in the engine's place: user, caches, sandbox, CUDA."""

from __future__ import annotations

import hashlib
import json
import os
import pkgutil
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kdops.guard.checks import nvidia
from kdops.guard.checks.ask import Question
from kdops.guard.checks.row import Row, State
from kdops.guard.context import Context

_SECONDS = 60
_FREE_MIB = 2048.0
"""A CUDA context takes some hundred MiB: an engine that serves must not run out of memory for a test."""

_NOT_TAKEN = {
    "Type", "NotifyAccess", "ExecStart", "EnvironmentFile", "LoadCredential", "RuntimeDirectory",
    "WorkingDirectory", "TimeoutStartSec", "TimeoutStopSec", "TimeoutAbortSec", "WatchdogSec", "KillMode",
    "SuccessExitStatus", "Restart", "RestartSec", "RestartPreventExitStatus", "OOMPolicy", "SyslogIdentifier",
    "ExecStartPre",
}  # fmt: skip
"""What belongs to the engine and not to its sandbox."""

_STATUS = {  # systemd.exec(5), "Process exit codes"
    200: ("its working directory", "look at RuntimeDirectory of the unit"),
    203: ("its interpreter", "look at the environment below /opt/kdops/venvs"),
    217: ("its user", "create the user, or correct engine_user"),
    226: ("its sandbox", "the kernel or a container forbids mount namespaces; look at the evidence"),
    233: ("its runtime directory", "look at /run: full, or read-only?"),
    239: (
        "its cache directory",
        "make /var/cache/kdtree a folder that systemd may change",
    ),
}


def rows(ctx: Context, asked: Question) -> Iterator[Row]:
    """Run the probe unit. Nothing of it stays but a note in /run that this sandbox was seen to work."""
    if not asked.unit:
        return
    if not Path("/run/systemd/system").is_dir():
        yield Row("sandbox", State.NOT_RUN, "the host was not started by systemd")
        return
    if not known_user(asked.user):
        text = f"user {asked.user} does not exist yet: the first deploy creates it"
        yield Row("sandbox", State.NOT_RUN, text)
        return
    venv = ctx.layout.venvs / asked.venv
    device, why, gpu = _device(ctx, asked, venv)
    note = ctx.layout.checks / "sandbox" / _digest(asked, venv)
    if device != "none" and note.is_file():
        device, why = "none", f"{note.read_text()} (since the last boot)"
    yield from judge(asked, probe(ctx, asked, venv, device, gpu), device, why, note)


def judge(
    asked: Question, ended: tuple[int, dict[str, Any], str], device: str, why: str, note: Path
) -> Iterator[Row]:
    """Return the rows for how the probe ended: (status, report, systemd's last words)."""
    status, report, said = ended
    if not report:
        what, remedy = _STATUS.get(status, ("the service", "look at `journalctl -u 'kdops-probe-*'` there"))
        title = f"systemd cannot set up {what} (status {status})"
        check = "caches" if status == 239 else "sandbox"
        yield Row(check, State.FAIL, said or "no word", remedy, title)
        return
    for cache in report["caches"]:
        folder, _, closed = cache.partition(": ")
        title = f"the service's user {asked.user} cannot write its cache {folder}"
        yield Row("caches", State.FAIL, closed, f"on the host: chown -R {asked.user} {folder}", title)
    if not report["caches"]:
        yield Row("caches", State.OK, f"writable by {asked.user}")
    for file in report["files"][:3]:
        text = f"the service's user {asked.user} cannot read {file}"
        yield Row("model files", State.FAIL, text, "on the host: chmod -R a+rX the model's folder")
    if error := report.get("error"):
        remedy = "compare with the same command outside the unit; look at driver and device files"
        yield Row("sandbox", State.FAIL, error, remedy, "torch does not start in the service's sandbox")
    elif device == "none":
        known = why.endswith("(since the last boot)")
        yield Row("sandbox", State.OK if known else State.NOT_RUN, why)
    else:
        text = f"torch {report['torch']} allocates on {report['device']}"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(text)
        yield Row("sandbox", State.OK, text)


def probe_unit(unit: str, command: str, folder: str, name: str) -> str:
    """Return `unit` with its [Service] body around `command`, whose output goes to `folder`/out."""
    body, section = [], ""
    for line in unit.splitlines():
        section = line if line.startswith("[") else section
        if section == "[Service]" and line.partition("=")[0] not in _NOT_TAKEN and not line.startswith("["):
            body.append(line)
    return "\n".join(
        [
            "# Written by `kdops check`, removed at its end.",
            "[Service]",
            "Type=oneshot",
            f"ExecStart={command}",
            f"EnvironmentFile={folder}/engine.env",
            f"RuntimeDirectory={name}",
            f"WorkingDirectory=%t/{name}",
            f"TimeoutStartSec={_SECONDS}",
            f"StandardOutput=truncate:{folder}/out",
            f"SyslogIdentifier={name}",
            *body,
            "",
        ]
    )


def probe(
    ctx: Context, asked: Question, venv: Path, device: str, gpu: str
) -> tuple[int, dict[str, Any], str]:
    """Run the probe unit; return its exit status, what it reported, and systemd's last words."""
    ctx.layout.checks.mkdir(mode=0o755, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="probe-", dir=ctx.layout.checks))
    name = f"kdops-{folder.name}"
    unit = ctx.layout.root / "run/systemd/system" / f"{name}.service"
    caches = [ctx.layout.root / "var/cache" / word for word in _caches(asked.unit)]
    absent = [cache for cache in caches if not cache.exists()]
    try:
        folder.chmod(0o755)
        (folder / "probe_main.py").write_bytes(pkgutil.get_data("kdops.guard", "probe_main.py") or b"")
        (folder / "probe_main.py").chmod(0o644)
        environment = folder / "engine.env"
        environment.touch(mode=0o600)
        environment.write_text(asked.environment + (f"\nCUDA_VISIBLE_DEVICES={gpu}\n" if gpu else ""))
        python = "/usr/bin/python3" if device == "none" else f"{venv}/bin/python"
        words = [python, "-IB", f"{folder}/probe_main.py", device, *asked.models]
        command = " ".join(map(_quoted, words))
        unit.write_text(probe_unit(asked.unit, command, str(folder), name))
        try:
            subprocess.run(
                ["systemctl", "start", unit.name], check=False, capture_output=True, timeout=_SECONDS + 30
            )
        except subprocess.TimeoutExpired:
            subprocess.run(["systemctl", "stop", "--no-block", unit.name], check=False, capture_output=True)
            return -1, {}, f"systemd has not ended it in {_SECONDS + 30} s"
        return _status(unit.name), _report(folder / "out"), _said(unit.name)
    finally:
        subprocess.run(["systemctl", "reset-failed", unit.name], check=False, capture_output=True)
        unit.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        for cache in absent:
            _drop_empty(cache)


def _quoted(word: str) -> str:
    """Return a word of ExecStart= (systemd.service(5), "Command lines")."""
    for char, written in (("\\", r"\\"), ('"', r"\""), ("%", "%%"), ("$", "$$")):
        word = word.replace(char, written)
    return f'"{word}"'


def _device(ctx: Context, asked: Question, venv: Path) -> tuple[str, str, str]:
    """Return what the probe allocates on ("none": nothing), why not, and the GPU it may see."""
    if not os.access(venv / "bin" / "python", os.X_OK):
        return "none", "the Python environment is not on the host yet: the deploy builds it", ""
    if asked.settings.get("device") == "cpu":
        return "cpu", "", ""
    try:
        found = nvidia.gpus()
    except RuntimeError as error:
        return "none", str(error), ""
    roomiest = max(found, key=lambda gpu: gpu.memory_total - gpu.memory_used, default=None)
    if roomiest is None or roomiest.memory_total - roomiest.memory_used < _FREE_MIB:
        return "none", "every GPU is full: an engine that serves must not run out of memory for a test", ""
    return "cuda", "", roomiest.uuid


def _digest(asked: Question, venv: Path) -> str:
    """Name a sandbox: the unit's body without the release's folder, and the environment."""
    body = probe_unit(asked.unit, "", "", "")
    return hashlib.sha256(f"{venv}\n{body}".encode()).hexdigest()[:16]


def _caches(unit: str) -> list[str]:
    lines = (line.partition("=") for line in unit.splitlines())
    return [word for key, _, value in lines if key == "CacheDirectory" for word in value.split()]


def _drop_empty(folder: Path) -> None:
    for path in (folder, *folder.parents[:1]):
        try:
            path.rmdir()
        except OSError:
            return


def known_user(name: str) -> bool:
    """Is there a user of that name?"""
    argv = ["getent", "passwd", name]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


def _status(unit: str) -> int:
    argv = ["systemctl", "show", unit, "--property=ExecMainStatus", "--value"]
    out = subprocess.run(argv, check=False, capture_output=True, text=True).stdout.strip()
    return int(out) if out.isdecimal() else -1


def _report(out: Path) -> dict[str, Any]:
    try:
        found = json.loads(out.read_text().strip().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}
    return found if isinstance(found, dict) else {}


def _said(unit: str) -> str:
    subprocess.run(["journalctl", "--sync"], check=False, capture_output=True)
    argv = ["journalctl", "--quiet", "--output=cat", "--lines=6", f"--unit={unit}"]
    out = subprocess.run(argv, check=False, capture_output=True, text=True, errors="replace").stdout
    lines = [line.strip() for line in out.splitlines() if ": Failed" in line or "rror" in line]
    return lines[0][:300] if lines else ""
