"""From the menu to the end of an action, with the host's side played by the test."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import session
from test_tui_app import Script, run, shown
from textual.widgets import OptionList, SelectionList

from kdops.deploy.progress import Display, Now
from kdops.errors import KdopsError
from kdops.fleet import Host, SshTarget, profile_names
from kdops.fleet.gpus import BY_ID
from kdops.tui import actions, new_run
from kdops.tui.actions import Prepared
from kdops.tui.dialogs import Ask, Choose, Running
from kdops.tui.findings import Diagnosis, draw
from kdops.tui.process import COMMAND, follow
from kdops.tui.themes import DARK, colours

pytestmark = pytest.mark.unit
HOST = Host("b300-0", (), Path("i.yml"), SshTarget("a", None, None, None, ()), BY_ID["cpu"], 0, "s", {}, {})


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Call it with what an action does; every action then does that."""

    def use(work: Callable[[Display], str], *, ask: bool = True) -> None:
        made = Prepared(
            "restart b300-0", "kdops restart b300-0", "b300-0: nobody is served", ["a line"], work, ask
        )
        monkeypatch.setattr(actions, "prepare", lambda name, host, profile=None: made)

    return use


async def open_menu(app, pilot):
    await pilot.press("a")
    await pilot.pause()
    assert isinstance(app.screen, Choose)


async def wait(app, pilot, kind):
    for _ in range(100):
        if isinstance(app.screen, kind):
            await pilot.pause()
            return
        await pilot.pause(0.02)
        app.tick()
    pytest.fail(f"no {kind.__name__}")


def dashboard(test, **options):
    run(test, Script(list(session.events(2))), hosts={"b300-0": HOST}, **{"write": True, **options})


def test_an_action_asks_then_shows_its_progress_and_its_end(prepared):
    go = threading.Event()

    def work(display: Display) -> str:
        display.note("release a -> b")
        display.show(Now("start", "starting", "phase=weights 12 s", 12.0, 60.0))
        go.wait(10)
        return "b300-0: ready"

    prepared(work)

    async def test(app, pilot):
        await open_menu(app, pilot)
        await pilot.press("j", "j", "enter")
        await wait(app, pilot, Ask)
        text = await shown(app, pilot)
        assert "a line" in text and "$ kdops restart b300-0" in text and "nobody is served" in text
        await pilot.press("enter", "space")
        assert isinstance(app.screen, Ask), "only y says yes"
        await pilot.press("y")
        await wait(app, pilot, Running)
        await pilot.pause(0.6)
        text = await shown(app, pilot)
        assert "release a -> b" in text and "start weights 12 s" in text and "s left" in text
        await pilot.press("escape")
        assert "▶ restart b300-0" in await shown(app, pilot), "it goes on"
        await pilot.press("q")
        await wait(app, pilot, Ask)
        assert "Leaving stops no service" in await shown(app, pilot)
        await pilot.press("n", "a")
        await wait(app, pilot, Running)
        go.set()
        for _ in range(100):
            if app.screen.ended:
                break
            await pilot.pause(0.02)
            app.tick()
        assert "b300-0: ready" in await shown(app, pilot)

    dashboard(test)


def test_an_action_that_fails_says_why_and_what_to_do(prepared):
    def work(display: Display) -> str:
        raise KdopsError(
            "it did not start", cause="\x1b[31mno memory", remedy="lower it", evidence=("line 1",)
        )

    prepared(work, ask=False)

    async def test(app, pilot):
        await open_menu(app, pilot)
        await pilot.press("enter")
        await wait(app, pilot, Running)
        for _ in range(100):
            if app.screen.ended:
                break
            await pilot.pause(0.02)
            app.tick()
        text = await shown(app, pilot)
        assert "| line 1" in text and "cause: \\x1b[31mno memory" in text and "remedy: lower it" in text

    dashboard(test)


def test_what_a_long_action_said_first_can_be_read(prepared):
    def work(display: Display) -> str:
        for n in range(100):
            display.note(f"check {n}.")
        return "done"

    prepared(work, ask=False)

    async def test(app, pilot):
        await open_menu(app, pilot)
        await pilot.press("enter")
        await wait(app, pilot, Running)
        for _ in range(100):
            if "scroll" in await shown(app, pilot):
                break
            await pilot.pause(0.02)
        assert "check 99." in await shown(app, pilot)
        await pilot.press("k", "k")
        text = await shown(app, pilot)
        assert "done" not in text and "check 99." not in text and "check 98." in text
        await pilot.press("home")
        assert "check 0." in await shown(app, pilot)

    dashboard(test)


def test_a_refused_check_is_an_answer(monkeypatch):
    script = "print('fail  disk'); raise SystemExit(5)"
    monkeypatch.setattr(actions, "COMMAND", (sys.executable, "-c", script))
    said: list[str] = []

    class Lines:
        def note(self, text: str) -> None:
            said.append(text)

        def show(self, now: Now) -> None:
            pytest.fail("it has no phases")

    with pytest.raises(KdopsError) as refused:
        actions.prepare("check", HOST).run(Lines())
    assert said == ["fail  disk"]
    assert refused.value.title == "a deploy would be refused"
    with pytest.raises(KdopsError, match="kdops report ended with exit code 5"):
        actions.prepare("report", HOST).run(Lines())


@pytest.mark.parametrize(
    ("chosen", "suite", "expected"),
    [
        (("ddtree", "linear"), "quick", (["ddtree", "linear"], True)),
        (("linear",), "full", (["linear", "linear"], False)),
    ],
)
def test_a_comparison_is_chosen_with_its_baseline_first(monkeypatch, tmp_path, chosen, suite, expected):
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path))
    asked = []

    def prepare(host: Host, names: list[str], *, quick: bool) -> Prepared:
        asked.append((names, quick))
        return Prepared("compare", "kdops ab", "it serves nobody else", ["the cost"], lambda _: "measured")

    monkeypatch.setattr(new_run, "prepare", prepare)

    async def test(app, pilot):
        await pilot.press("4", "n")
        await wait(app, pilot, new_run.Arms)
        offered = app.screen.query_one(SelectionList)
        names = [offered.get_option_at_index(i).value for i in range(offered.option_count)]
        assert names == list(profile_names(HOST))
        for name in chosen:
            offered.highlighted = names.index(name)
            await pilot.press("space")
        await pilot.press("c")
        await wait(app, pilot, Choose)
        app.screen.query_one(OptionList).highlighted = ("full", "quick").index(suite)
        await pilot.press("enter")
        await wait(app, pilot, Ask)
        assert asked == [expected]
        assert "the cost" in await shown(app, pilot)
        await pilot.press("y")
        await wait(app, pilot, Running)

    dashboard(test)


def test_a_comparison_needs_write(monkeypatch, tmp_path):
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path))

    async def test(app, pilot):
        await pilot.press("4", "n")
        assert "a comparison takes the host" in await shown(app, pilot)
        assert len(app.screen_stack) == 1

    dashboard(test, write=False)


def test_a_command_is_of_this_kdops_whatever_the_folder_holds(monkeypatch, tmp_path):
    (tmp_path / "kdops").mkdir()
    (tmp_path / "kdops/__init__.py").write_text("raise SystemExit('another kdops')")
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    assert follow([*COMMAND, "--help"], said.append) == 0, said


def test_nothing_is_asked_when_the_host_says_no(monkeypatch):
    def refuse(name: str, host: Host, profile: str | None = None) -> Prepared:
        raise KdopsError("locked", cause="ann deploys [x]", remedy="wait")

    monkeypatch.setattr(actions, "prepare", refuse)

    async def test(app, pilot):
        await open_menu(app, pilot)
        await pilot.press("enter")
        for _ in range(100):
            if "ann deploys [x]" in await shown(app, pilot):
                return
            await pilot.pause(0.02)
        pytest.fail(await shown(app, pilot))

    dashboard(test)


def test_read_only_lets_nothing_be_chosen_that_changes_a_host(prepared):
    prepared(lambda display: pytest.fail("it ran"))

    async def test(app, pilot):
        await open_menu(app, pilot)
        text = await shown(app, pilot)
        assert text.count("needs --write") == 6
        app.screen.query_one(OptionList).highlighted = 2
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Choose)

    dashboard(test, write=False)


def test_the_findings_panel():
    shades = colours(DARK)
    empty = draw(None, "box", "d", shades).plain
    assert "d, or `kdops diagnose box`" in empty
    assert draw(Diagnosis(), "box", "d", shades).plain == "no finding\n"
    assert "asking" in draw(Diagnosis(asking=True), "box", "d", shades).plain
    told = draw(Diagnosis(absent=(("GPUs", "no driver"),)), "box", "d", shades).plain
    assert "not looked at: GPUs: no driver" in told
