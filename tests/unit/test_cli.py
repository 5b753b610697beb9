"""The command line as a shell sees it: exit codes, streams, no stack traces."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit


def kdops(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kdops.cli.main", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )


def test_help_lists_commands_on_stdout() -> None:
    result = kdops("--help")
    assert result.returncode == 0
    assert "Usage: kdops" in result.stdout
    assert result.stderr == ""


def test_unknown_command_is_usage_error() -> None:
    result = kdops("deplyo")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "deplyo" in result.stderr
    assert "Traceback" not in result.stderr


def test_top_level_help_imports_nothing_heavy() -> None:
    """`--help` stays fast because ansible, fabric and textual are imported by the commands that need them."""
    code = (
        "import sys; sys.argv=['kdops','--help']\n"
        "from kdops.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'ansible', 'ansible_runner', 'fabric', 'paramiko', 'textual'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.strip() == "[]"


def test_own_failure_leaves_a_report_and_no_trace(tmp_path: Path) -> None:
    code = (
        "import kdops.cli.main as m\n"
        "@m.app.command('boom')\n"
        "def boom() -> None: raise ZeroDivisionError('x')\n"
        "import sys; sys.argv=['kdops','boom']; m.main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "KDOPS_STATE": str(tmp_path)},
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "ZeroDivisionError" in (tmp_path / "crash.txt").read_text()


def test_own_failure_is_told_where_no_report_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code = (
        "import kdops.cli.main as m\n"
        "@m.app.command('boom')\n"
        "def boom() -> None: raise ZeroDivisionError('x')\n"
        "import sys; sys.argv=['kdops','boom']; m.main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "KDOPS_STATE": str(tmp_path / "file" / "state")},
    )
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr
    assert "set KDOPS_STATE" in result.stderr
    assert "Traceback" not in result.stderr
