"""Real deploys onto lab hosts: the command line as a process that can be cut, killed or left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import LabHandle

REPOSITORY = Path(__file__).parent.parent.parent
STANDIN = Path(__file__).parent / "standin" / "serve_main.py"
UNIT = "kdtree-lab0.service"
_DATA = ("kdops", "playbooks", "templates", "inventories")


def standin_tree(target: Path, ballast: int = 0) -> Path:
    """Copy kdops to `target` with the stand-in as its engine; ballast: bytes that slow the upload down."""
    for name in _DATA:
        shutil.copytree(REPOSITORY / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    package = target / "engine" / "kdtree_engine"
    (package / "serve").mkdir(parents=True)
    shutil.copy(REPOSITORY / "engine/pyproject.toml", target / "engine/pyproject.toml")
    shutil.copytree(REPOSITORY / "engine/locks", target / "engine/locks")
    shutil.copy(STANDIN, package / "serve/__main__.py")
    for init in (package / "__init__.py", package / "serve/__init__.py"):
        init.touch()
    if ballast:
        (package / "ballast.bin").write_bytes(os.urandom(ballast))
    return target


def write_inventory(folder: Path, ssh_args: str, **variables: Any) -> Path:
    """Write an inventory of lab0 and lab1 with the lab's group variables; returns its path."""
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / "inventories/group_vars/lab.yml", folder / "group_vars/lab.yml")
    hosts = {"lab0": None, "lab1": None}
    own = {"ansible_ssh_common_args": ssh_args, "kdops_lease": 4, "engine_start_timeout": 60, **variables}
    path = folder / "lab.yml"
    path.write_text(yaml.safe_dump({"lab": {"hosts": hosts, "vars": own}}))
    # a group's variables in the inventory file yield to group_vars: write them there
    text = (folder / "group_vars/lab.yml").read_text()
    kept = {k: v for k, v in yaml.safe_load(text).items() if k not in own}
    (folder / "group_vars/lab.yml").write_text(yaml.safe_dump({**kept, **own}))
    return path


def children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *children(int(child))]
    return found


@dataclass
class Process:
    """A running kdops command; stderr is read line by line so that a test can act at a phase."""

    popen: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def until(self, marker: str) -> None:
        """Read stderr up to the line that starts with `marker`; the test fails if the command ends before."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.lines.append(line.rstrip())
            if line.startswith(marker):
                return
        pytest.fail(f"never came to {marker!r}:\n" + "\n".join(self.lines))

    def end(self, timeout: float = 120) -> tuple[int, str]:
        """Wait; return exit code and everything said on stderr."""
        _, rest = self.popen.communicate(timeout=timeout)
        self.lines += rest.splitlines()
        return self.popen.returncode, "\n".join(self.lines)

    def kill(self) -> None:
        """SIGKILL the command and everything it started: nothing of the client is left."""
        for pid in [self.popen.pid, *children(self.popen.pid)]:
            os.kill(pid, signal.SIGKILL)
        self.popen.communicate()

    def interrupt(self) -> None:
        self.popen.send_signal(signal.SIGINT)


@dataclass(frozen=True)
class Deployer:
    """kdops from `tree` against one lab host."""

    lab: LabHandle
    tree: Path
    inventory: Path
    host: str = "lab0"

    def start(self, *arguments: str) -> Process:
        environment = {**os.environ, "PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        command = [sys.executable, "-m", "kdops.cli.main", *arguments, "-i", str(self.inventory)]
        return Process(
            subprocess.Popen(
                command,
                env=environment,
                cwd=self.tree,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    def run(self, *arguments: str, timeout: float = 180) -> tuple[int, str, str]:
        """Run a command to its end; return exit code, stdout, stderr."""
        process = self.start(*arguments)
        out, err = process.popen.communicate(timeout=timeout)
        return process.popen.returncode, out, err

    def deploy(self, *arguments: str, mode: str = "") -> tuple[int, str]:
        code, _, said = self.run("deploy", self.host, *with_mode(mode), *arguments)
        return code, said

    def playbook(self, name: str, *arguments: str) -> CompletedProcess[str]:
        """Run one of the playbooks as a user of plain Ansible would; `arguments` follow `-l lab0`.

        Nobody renews the lease, so it must be longer than the tests' own.
        """
        bin_folder = self.inventory.parent / "bin"
        bin_folder.mkdir(exist_ok=True)
        command = bin_folder / "kdops"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kdops.cli.main "$@"\n')
        command.chmod(0o755)
        path = f"{bin_folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        given = ["-i", str(self.inventory), f"playbooks/{name}", "-l", self.host, *arguments]
        return subprocess.run(
            ["ansible-playbook", "-e", "kdops_lease=300", *given],
            cwd=self.tree,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(self.tree), "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )

    def guard(self, *arguments: str, stdin: str = "") -> dict[str, Any]:
        """Call the guard on the host as a client does, over ssh; returns its document."""
        options = ["-F", str(self.lab.ssh_config), "-oBatchMode=yes"]
        call = ["python3", "-IB", "/opt/kdops/guard/kdops_guard.pyz", *arguments]
        done = subprocess.run(
            ["ssh", *options, self.host, *call], input=stdin, capture_output=True, text=True, timeout=60
        )
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.lab.ssh(self.host, "cat /var/lib/kdops/txn.json"))
        return found

    def outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = self.state()["outcome"]
        return found

    def let_go(self) -> None:
        """End the load of a stand-in in mode "held"."""
        self.lab.ssh(self.host, "touch /run/standin-go")

    def property(self, name: str) -> str:
        return self.lab.ssh(self.host, f"systemctl show {UNIT} -P {name}")

    def serves(self) -> str:
        """The release that answers requests now, by its unit's command line; empty when none does."""
        if self.property("ActiveState") != "active":
            return ""
        pid = self.property("MainPID")
        command = self.lab.ssh(self.host, f"tr '\\0' ' ' </proc/{pid}/cmdline")
        port = self.lab.ssh(
            self.host, "curl -sf -o /dev/null localhost:30000/health && echo yes", check=False
        )
        return command.split("/opt/kdops/releases/")[1].split("/")[0] if port == "yes" else ""

    def finished(self) -> bool:
        """Has command or guard ended the transaction?"""
        return self.state()["transaction"] is None


def with_mode(mode: str) -> Sequence[str]:
    """Return the option that makes the stand-in behave as `mode`."""
    settings = f"SGLANG_USE_CPU_ENGINE: '1', STANDIN: '{mode}'"
    return ("--set", f"engine_environment={{{settings}}}") if mode else ()


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Poll a condition that costs an SSH call."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds} s: {what}")
        time.sleep(0.3)
