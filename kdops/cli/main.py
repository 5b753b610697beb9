"""Entry point: one typer application, one module per group of commands."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from pathlib import Path

import typer
from typer._click.exceptions import NoArgsIsHelpError, NoSuchOption
from typer._click.exceptions import UsageError as Mistyped

from kdops import __version__, paths
from kdops.cli import ab, check, config, daily, deploy, diagnose, generate, lab, report, tui
from kdops.cli.lab_words import better
from kdops.cli.output import say, show_error
from kdops.errors import ExitCode, KdopsError, UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

app = typer.Typer(
    name="kdops",
    help="Deploy, watch and compare speculative decoding on your own GPU hosts, under systemd.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"kdops {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def _crash_report() -> str:
    path = paths.state() / "crash.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(traceback.format_exc(), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return f"this bug; set KDOPS_STATE to a folder that keeps the trace ({path}: {error.strerror})"
    return f"this bug; its trace is in {path}, please attach it"


def _of_this_machine(error: OSError) -> KdopsError | None:
    """Return what to tell of a full disk, or of a named path that cannot be used; None for anything else."""
    if error.errno in _FULL:
        return KdopsError(
            "nothing can be written here",
            cause=f"{error.filename or 'output or temporary files'}: {error.strerror}",
            remedy="free space on this machine, or set TMPDIR and KDOPS_CACHE to a folder on another disk",
        )
    if not _named(error.filename):
        return None
    return KdopsError(
        "a file or folder of this machine cannot be used",
        cause=f"{str(error.filename)[:300]}: {error.strerror}",
        remedy="see to it, or name another one; HOME, TMPDIR and the KDOPS_ and XDG_ variables name some",
    )


def _named(filename: object) -> bool:
    """Is it in a path that the command line or the environment names, or in one of kdops's own folders?"""
    if not isinstance(filename, str | bytes):
        return False
    here = Path(os.environ.get("PWD") or "/")  # the folder itself may be gone
    words = [word.rpartition("=")[2] for word in sys.argv[1:]]
    words += [value for name, value in os.environ.items() if name.startswith(("KDOPS_", "XDG_"))]
    named = [here / word for word in words if word]
    temporary = Path(os.environ.get("TMPDIR") or "/tmp")
    own = [paths.state(), paths.cache(), Path.home() / ".config/kdops", temporary]
    return any((here / os.fsdecode(filename)).is_relative_to(place) for place in (*named, *own))


def _mistyped(error: Mistyped) -> UsageError:
    """Return typer's complaint about the command line, which names what is near, as kdops tells errors."""
    command = error.ctx.command_path if error.ctx else "kdops COMMAND"
    return UsageError(
        f"{command}: this cannot be run as written",
        cause=_reason(error),
        remedy=f"{command} -h shows what it takes",
    )


def _reason(error: Mistyped) -> str:
    """Return why; of the options that typer holds for near, those whose names are, not only the dashes."""
    if not isinstance(error, NoSuchOption):
        return error.format_message()
    from kdops.fleet.problems import nearest

    asked = error.option_name.lstrip("-")
    near = [one for one in sorted(error.possibilities or ()) if nearest(asked, [one.lstrip("-")])]
    return error.message + (f" (did you mean {', '.join(near)}?)" if near else "")


ab.register(app)
check.register(app)
config.register(app)
daily.register(app)
deploy.register(app)
diagnose.register(app)
generate.register(app)
lab.register(app)
report.register(app)
tui.register(app)


def main() -> None:
    """Run the command line; every failure ends in a message and one of the documented exit codes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in the locale C, "×" must not end the command
            stream.reconfigure(errors="backslashreplace")
    try:
        Path.home()
    except RuntimeError:  # a user of a container: nobody knows it, and nothing can be kept
        os.environ["HOME"] = os.devnull
    try:
        sys.exit(app(prog_name="kdops", standalone_mode=False))
    except NoArgsIsHelpError as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except Mistyped as error:
        show_error(_mistyped(error))
        sys.exit(ExitCode.USAGE)
    except typer.Abort:
        say("interrupted")
        sys.exit(ExitCode.INTERRUPTED)
    except KdopsError as error:
        told = better(error)
        show_error(told)
        sys.exit(told.code)
    except Exception as error:
        if isinstance(error, OSError) and (known := _of_this_machine(error)):
            show_error(known)
            if error.errno in _FULL:
                # What stdout still holds cannot be written either; the flush at exit would make the code 120.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(ExitCode.FAILED)
        say(f"error: kdops itself failed: {type(error).__name__}: {error}")
        say(f"  remedy: report {_crash_report()}")
        sys.exit(ExitCode.FAILED)


if __name__ == "__main__":
    main()
