"""A new comparison: arms, then the suite, then what it costs; a process that outlives the screen."""

from __future__ import annotations

import random
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import SelectionList, Static
from textual.widgets.selection_list import Selection

from kdops.bench import arms, job, workloads
from kdops.deploy.client import loads
from kdops.deploy.progress import Display
from kdops.errors import ExitCode, KdopsError
from kdops.fleet import Host, profile_names
from kdops.text import printable
from kdops.tui.actions import Prepared
from kdops.tui.dialogs import Choice, Choose
from kdops.tui.process import COMMAND, follow

if TYPE_CHECKING:
    from kdops.tui.app import Dashboard

_NO_VERDICT = (ExitCode.INCONCLUSIVE, ExitCode.NOT_LOSSLESS)
_SUITES = (
    Choice("full", "full: at least 4 starts an arm, a verdict"),
    Choice("quick", "quick: 1 start an arm, exploratory, no verdict"),
)


class Arms(ModalScreen[list[str] | None]):
    """Several of a list; the first chosen is the baseline."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss(None)", "close"),
        Binding("c", "go", "continue"),
    ]

    def __init__(self, title: str, names: Sequence[str]) -> None:
        super().__init__()
        self._title, self._names = title, names

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog") as box:
            box.border_title = printable(self._title)
            yield SelectionList[str](*(Selection(Text(name), name) for name in self._names))
            yield Static(
                "space chooses, c goes on; the first is the baseline, one alone is compared with itself",
                classes="dim",
            )

    def action_go(self) -> None:
        chosen = self.query_one(SelectionList).selected
        self.dismiss(list(chosen) or None)


def ask(app: Dashboard, name: str | None) -> None:
    """Ask for arms and suite, then show the cost and ask again."""
    if name is None or name not in app.hosts or not app.write:
        app.notify("a comparison takes the host for itself: start kdops tui with --write", severity="warning")
        return
    host = app.hosts[name]

    def with_arms(chosen: list[str] | None) -> None:
        if not chosen:
            return
        names = chosen if len(chosen) > 1 else chosen * 2

        def with_suite(suite: str | None) -> None:
            if suite:
                app.doing.ask(name, lambda: prepare(host, names, quick=suite == "quick"))

        app.push_screen(Choose(f"suite for {' '.join(names)}", _SUITES), with_suite)

    app.push_screen(Arms(f"arms to compare on {name}", profile_names(host)), with_arms)


def prepare(host: Host, names: Sequence[str], *, quick: bool) -> Prepared:
    """Return the comparison with what it costs; asks the host for its earlier loads. Raises KdopsError."""
    seed = random.SystemRandom().randrange(2**31)
    sets = workloads.built_in()
    plan = job.prepare(
        host,
        arms.parse(names, []),
        lambda length: workloads.make(sets, quick=quick, context_length=length),
        quick=quick,
        seed=seed,
    )
    cost = job.cost(plan, loads(host))
    arguments = ["ab", *names, "--host", host.name, "--seed", str(seed), *(["--quick"] if quick else [])]
    command = [*arguments, "--yes", "-i", str(host.inventory)]
    return Prepared(
        f"compare {' '.join(names)} on {host.name}",
        printable(shlex.join(["kdops", *command])),
        f"{host.name} serves nobody else during the run; what serves now is restored afterwards",
        [cost],
        lambda display: _run(command, display),
    )


def _run(command: Sequence[str], display: Display) -> str:
    code = follow([*COMMAND, *command], display.note)
    if code and code not in _NO_VERDICT:
        raise KdopsError(
            f"kdops ab ended with exit code {code}",
            cause="see above",
            remedy="as it says",
            code=ExitCode.FAILED,
        )
    return "measured" if not code else "measured: no verdict, or not lossless; the report says why"
