"""From the menu to the end of an action: choose, look what it would do, ask, do, tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kdops.deploy.progress import Now
from kdops.errors import KdopsError
from kdops.fleet import profile_names
from kdops.tui import actions
from kdops.tui.actions import Prepared
from kdops.tui.background import Background
from kdops.tui.dialogs import Ask, Choice, Choose, Running, Tell

if TYPE_CHECKING:
    from kdops.tui.app import Dashboard


class _Shown:
    """A `Display` whose calls come from another thread."""

    def __init__(self, background: Background, box: Running) -> None:
        self._background, self._box = background, box

    def note(self, text: str) -> None:
        self._background.later(lambda: self._box.note(text))

    def show(self, now: Now) -> None:
        self._background.later(lambda: self._box.progress(now))


class Doing:
    """The actions of one dashboard; at most one a host at a time."""

    def __init__(self, app: Dashboard) -> None:
        self._app = app
        self._boxes: dict[str, Running] = {}

    @property
    def running(self) -> list[str]:
        """What goes on now, in words."""
        return [box.words for box in self._boxes.values() if not box.ended]

    def menu(self, name: str | None) -> None:
        """Offer what can be done to the host."""
        app = self._app
        if name is None or name not in app.hosts:
            app.notify("a recording can only be watched", severity="warning")
            return
        if (box := self._boxes.get(name)) and not box.ended:
            app.push_screen(box)
            return

        def then(chosen: str | None) -> None:
            if chosen == "profile":
                self._profile(name)
            elif chosen:
                self.prepare(chosen, name)

        app.push_screen(Choose(f"actions on {name}", actions.choices(app.write)), then)

    def _profile(self, name: str) -> None:
        host = self._app.hosts[name]
        serving = self._app.samples[name].row.profile
        listed = [
            Choice(one, f"{one} (serves now)" if one == serving else one) for one in profile_names(host)
        ]

        def then(chosen: str | None) -> None:
            if chosen:
                self.prepare("profile", name, chosen)

        self._app.push_screen(Choose(f"profile for {name}", listed), then)

    def prepare(self, action: str, name: str, profile: str | None = None) -> None:
        """Find out what it would do, then ask."""
        host = self._app.hosts[name]
        self.ask(name, lambda: actions.prepare(action, host, profile))

    def ask(self, name: str, prepare: Callable[[], Prepared]) -> None:
        """Have something prepared in the background, then ask whether to do it."""
        self._app.notify(f"asking {name} what it would change…", timeout=3)
        self._app.background.run(prepare, lambda found: self._prepared(name, found))

    def _prepared(self, name: str, found: Prepared | Exception) -> None:
        if isinstance(found, Exception):
            self._app.push_screen(Tell(f"not possible on {name}", _words(found)))
            return
        if not found.ask:
            self.start(name, found)
            return

        def then(yes: bool | None) -> None:
            if yes:
                self.start(name, found)

        self._app.push_screen(Ask(found.title, found.effect, found.command, found.plan), then)

    def start(self, name: str, prepared: Prepared) -> None:
        """Do it and show how it goes."""
        app = self._app
        box = self._boxes[name] = Running(prepared.title, prepared.command)
        app.push_screen(box)

        def then(result: str | Exception) -> None:
            if isinstance(result, Exception):
                for line in result.evidence if isinstance(result, KdopsError) else ():
                    box.note(f"| {line}", "dim")
                box.end(_words(result), ok=False)
            else:
                box.end(result, ok=True)
            if box not in app.screen_stack:
                app.notify(
                    _words(result),
                    severity="error" if isinstance(result, Exception) else "information",
                    markup=False,
                )

        shown = _Shown(app.background, box)
        app.background.run(lambda: prepared.run(shown), then)

    def quit(self) -> None:
        """Leave; while an action goes on, ask first and say who finishes it."""
        if not self.running:
            self._app.exit()
            return

        def then(yes: bool | None) -> None:
            if yes:
                self._app.exit()

        effect = (
            "Leaving stops no service. The host itself finishes or undoes a deploy once its lease is over;"
            " a comparison goes on by itself."
        )
        self._app.push_screen(
            Ask("leave while an action goes on?", effect, "kdops status", self.running), then
        )


def _words(found: object) -> str:
    if isinstance(found, KdopsError):
        return f"{found.title}\ncause: {found.cause}\nremedy: {found.remedy}"
    return f"{type(found).__name__}: {found}" if isinstance(found, Exception) else str(found)
