"""The command line as a shell sees it: exit codes, streams, no stack traces."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from kdops.cli.main import app

pytestmark = pytest.mark.unit

INVENTORIES = str(Path(__file__).parents[2] / "inventories")


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


@pytest.mark.parametrize(
    ("words", "command", "cause"),
    [
        (("--bogus",), "kdops", "--bogus"),
        (("deplyo",), "kdops", "Did you mean 'deploy'?"),
        (("lab", "upp"), "kdops lab", "Did you mean 'up'?"),
        (("deploy",), "kdops deploy", "HOST"),
        (("bench", "x", "--toknes", "3"), "kdops bench", "--toknes (did you mean --tokens?)"),
        (("lab", "up", "two"), "kdops lab up", "integer"),
        (("ab", "a", "b", "--legs", "9"), "kdops ab", "8"),
        (("hosts", "\x1b[31m"), "kdops hosts", r"\x1b[31m"),
        (("logs", "x", "-n"), "kdops COMMAND", "'-n' requires an argument"),
    ],
)
def test_every_mistyped_command_has_a_cause_and_a_remedy(
    words: tuple[str, ...], command: str, cause: str
) -> None:
    result = kdops(*words)
    assert (result.returncode, result.stdout) == (2, "")
    title, why, remedy = result.stderr.splitlines()
    assert title.startswith(f"error: {command}: ")
    assert why.startswith("  cause:  ") and cause in why
    assert remedy == f"  remedy: {command} -h shows what it takes"


def test_an_option_that_shares_only_dashes_is_not_near() -> None:
    why = kdops("deploy", "--host", "lab0").stderr.splitlines()[1]
    assert why == "  cause:  No such option: --host"


def test_diff_without_check_does_not_deploy_in_silence() -> None:
    done = kdops("deploy", "lab0", "--diff", KDOPS_INVENTORY=INVENTORIES)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --diff needs --check\n")


def test_a_prompt_that_is_no_text_is_refused_before_a_host_is_asked() -> None:
    command = [sys.executable, "-m", "kdops.cli.main", "generate", "lab0", b"half \xff", "-i", INVENTORIES]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert "the prompt is no text" in result.stderr


@pytest.mark.parametrize("words", [(), ("lab",)])
def test_no_command_is_answered_with_the_help(words: tuple[str, ...]) -> None:
    result = kdops(*words)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: kdops")


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


def crash(
    state: Path, does: str = "raise ZeroDivisionError('x')", *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a command that fails by a bug of its own, with `state` as the state folder."""
    code = (
        "import kdops.cli.main as m\n"
        "@m.app.command('boom')\n"
        f"def boom(word: str = '') -> None: {does}\n"
        f"import sys; sys.argv=['kdops','boom',*{words}]; m.main()"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "KDOPS_STATE": str(state)},
    )


def test_own_failure_leaves_a_report_and_no_trace(tmp_path: Path) -> None:
    result = crash(tmp_path)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "ZeroDivisionError" in (tmp_path / "crash.txt").read_text()


def test_own_failure_is_told_where_no_report_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = crash(tmp_path / "file" / "state")
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr
    assert "set KDOPS_STATE" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_that_nobody_named_is_a_bug_and_one_that_somebody_named_is_not(tmp_path: Path) -> None:
    for does, words in (
        ("open('/nobody/named')", ()),
        ("open('/nobody/named-it')", ("--word", "/nobody/named")),
    ):
        result = crash(tmp_path, does, *words)
        assert result.returncode == 1 and "kdops itself failed: FileNotFoundError" in result.stderr
    for does, words in (
        ("open(word)", ("--word", "/nobody/named")),
        ("open('/nobody/named/below')", ("--word=/nobody/named",)),
        (f"open('{tmp_path}/own')", ()),
    ):
        result = crash(tmp_path, does, *words)
        assert result.returncode == 1 and "file or folder of this machine" in result.stderr


def test_what_files_and_hosts_say_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    inventory = tmp_path / "i.yml"
    inventory.write_text('all: {hosts: {box: {gpu: cpu, engine_profile: "\\e[31mred"}}}')
    listed = kdops("hosts", "-i", str(inventory))
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "\\x1b[31mred" in listed.stdout
    missing = kdops("hosts", "-i", f"{tmp_path}/\x1b[31m")
    assert missing.returncode == 2
    assert "\x1b" not in listed.stdout + missing.stderr
    assert "\\x1b[31m does not exist" in missing.stderr


def test_a_plain_locale_ends_no_command(tmp_path: Path) -> None:
    plain = {"PYTHONIOENCODING": "ascii", "KDOPS_INVENTORY": INVENTORIES, "KDOPS_CACHE": str(tmp_path)}
    for _ in ("read by Ansible", "read from the cache"):
        result = kdops("config", "ct200", **plain)
        assert (result.returncode, result.stderr) == (0, "")
        assert "8 \\xd7 NVIDIA" in result.stdout


def test_a_full_disk_is_no_failure_of_kdops() -> None:
    command = [sys.executable, "-m", "kdops.cli.main", "hosts", "-i", INVENTORIES]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=buffered)
    assert result.returncode == 1
    assert "error: nothing can be written here" in result.stderr
    assert "itself" not in result.stderr


def test_a_home_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    own = {"HOME": f"{tmp_path}/file", "KDOPS_CACHE": f"{tmp_path}/cache"}
    result = kdops("hosts", "-i", INVENTORIES, **own)
    assert result.returncode == 2
    assert "set ANSIBLE_HOME" in result.stderr
    assert kdops("hosts", "-i", INVENTORIES, ANSIBLE_HOME=f"{tmp_path}/ansible", **own).returncode == 0


@pytest.mark.parametrize(
    ("name", "code", "remedy"), [("KDOPS_INVENTORY", 2, "name an"), ("XDG_CONFIG_HOME", 1, "see to it")]
)
def test_a_path_that_cannot_be_used_is_no_failure_of_kdops(
    tmp_path: Path, name: str, code: int, remedy: str
) -> None:
    command = [sys.executable, "-m", "kdops.cli.main", "hosts"]
    own = {**os.environ, name: "a" * 5000}
    result = subprocess.run(command, capture_output=True, text=True, env=own, cwd=tmp_path)
    assert result.returncode == code
    assert "File name too long" in result.stderr and f"remedy: {remedy}" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("hosts", "-i", INVENTORIES), 2, "set ANSIBLE_HOME"),
        (("ab", "list"), 1, "set KDOPS_STATE"),
        (("diagnose", "--journal", "-"), 0, ""),
        (("lab", "status"), 1, "KDOPS_ and XDG_ variables"),
    ],
)
def test_a_person_without_a_home_is_told_what_to_set(
    tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    script = "import os, sys; os.environ.pop('HOME', None); os.getuid = lambda: 54321\n"
    script += "from kdops.cli.main import main; main()"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("KDOPS_", "XDG_"))}
    command = [sys.executable, "-c", script, *words]
    result = subprocess.run(command, capture_output=True, text=True, env=own, cwd=tmp_path, input="")
    assert (result.returncode, "Traceback" in result.stderr) == (code, False)
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["status", "tui", "diagnose"])
def test_what_shows_al_says_over_which_steps(command: str) -> None:
    assert "AL is of" in " ".join(CliRunner().invoke(app, [command, "-h"]).output.split())


def commands(group: TyperGroup, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name)


def test_h_is_help_for_every_command() -> None:
    tree = typer.main.get_command(app)
    assert isinstance(tree, TyperGroup)
    asked = list(commands(tree))
    assert ("lab", "up") in asked and ("logs",) in asked
    for words in asked:
        short, long = (CliRunner().invoke(app, [*words, option]) for option in ("-h", "--help"))
        assert (short.exit_code, short.output) == (0, long.output), words
