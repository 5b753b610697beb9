"""The dashboard on two real systemd hosts with the stand-in engine: what it shows, every action it offers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deploying import Deployer, standin_tree, until, write_inventory
from textual.pilot import Pilot
from textual.widgets import OptionList, SelectionList

from kdops import fleet, paths
from kdops.cli.lab_words import better
from kdops.tui import start
from kdops.tui.app import Dashboard
from kdops.tui.details import Details
from kdops.tui.dialogs import Ask, Choose, Running
from kdops.tui.new_run import Arms

if TYPE_CHECKING:
    from conftest import LabHandle

pytestmark = pytest.mark.lab
HOSTS = ("lab0", "lab1")


@pytest.fixture(scope="module")
def kdops(lab: LabHandle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    """kdops with the stand-in engine; a committed linear release serves on both hosts."""
    folder = tmp_path_factory.mktemp("tui")
    inventory = write_inventory(folder / "inventory", f"-F {lab.ssh_config}")
    made = Deployer(lab, standin_tree(folder / "tree"), inventory)
    for host in HOSTS:
        lab.clean(host)
        code, _, said = made.run("deploy", host, "--profile", "linear")
        assert code == 0, said
    yield made
    for host in HOSTS:
        lab.clean(host)


@pytest.fixture
def drive(kdops: Deployer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Call it with a test of the dashboard over both hosts, driven by keys.

    It runs in a folder of its own; commands that it starts have the stand-in engine too.
    """
    monkeypatch.setattr(paths, "data", lambda name: kdops.tree / name)
    monkeypatch.setenv("PYTHONPATH", str(kdops.tree))
    monkeypatch.setenv("KDOPS_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")

    def run(test: Callable[[Driver], Awaitable[None]], **options: Any) -> None:
        hosts = fleet.load(kdops.inventory).hosts
        given = {"write": True, "view": "fleet", "theme": None, **options}
        app = start.live(hosts, 0.5, given.pop("record", None), better, **given)

        async def main() -> None:
            async with app.run_test(size=(140, 40)) as pilot:
                driver = Driver(app, pilot)
                await driver.until(lambda: all(s.seen for s in app.samples.values()), "both hosts are seen")
                await test(driver)

        asyncio.run(main())

    return run


class Driver:
    """Presses keys and waits for what they bring."""

    def __init__(self, app: Dashboard, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, condition: Callable[[], object], what: str, seconds: float = 60) -> None:
        stop = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > stop:
                pytest.fail(f"not within {seconds} s: {what}\n{start.text_of(self.app)}")
            await self.pilot.pause(0.05)

    async def choose(self, host: str, action: str) -> None:
        """Open the menu on a host and pick an action; ends with the question."""
        self.app.fleet.choose(host)
        await self.press("a")
        await self.pick(action)

    async def pick(self, id_: str) -> None:
        await self.pilot.pause()
        options = self.app.screen.query_one(OptionList)
        options.highlighted = options.get_option_index(id_)
        await self.press("enter")

    async def confirm(self, host: str, effect: str) -> str:
        """Wait for the question, check that it names host and effect, say yes; returns all it showed."""
        await self.until(lambda: isinstance(self.app.screen, Ask), f"the question about {host}")
        asked = self.app.screen
        assert isinstance(asked, Ask)
        assert asked.effect.startswith(f"{host}: ") and effect in asked.effect, asked.effect
        command = f"$ kdops {asked.command.split()[1]} {host}"
        await self.until(lambda: command in start.text_of(self.app), "the question is drawn")
        await self.press("y")
        return "\n".join([asked.effect, asked.command, *asked.plan])

    async def ended(self, said: str, seconds: float = 90) -> list[str]:
        """Wait for the end of the action in front; returns its lines."""
        await self.until(lambda: isinstance(self.app.screen, Running), "it begins")
        box = self.app.screen
        assert isinstance(box, Running)
        await self.until(lambda: box.ended, "the action ends", seconds)
        lines = [text for text, _ in box.said]
        assert said in lines[-1], lines
        await self.press("escape")
        return lines


def invocation(kdops: Deployer, host: str) -> str:
    return kdops.lab.ssh(host, f"systemctl show -P InvocationID kdtree-{host}")


def active(kdops: Deployer, host: str) -> str:
    return kdops.lab.ssh(host, f"systemctl is-active kdtree-{host}", check=False)


def test_restart_stop_and_start_from_the_screen(kdops: Deployer, drive: Callable[..., None]) -> None:
    before = {host: invocation(kdops, host) for host in HOSTS}

    async def test(driver: Driver) -> None:
        assert {s.row.state for s in driver.app.samples.values()} == {"running"}
        await driver.choose("lab1", "restart")
        text = await driver.confirm("lab1", "until it has loaded again")
        assert "kdops restart lab1" in text and "systemctl restart kdtree-lab1.service" in text
        await driver.ended("lab1: ready")
        assert invocation(kdops, "lab1") != before["lab1"]
        assert invocation(kdops, "lab0") == before["lab0"]
        await driver.choose("lab1", "stop")
        await driver.confirm("lab1", "nobody is served")
        await driver.ended("lab1: stopped")
        assert active(kdops, "lab1") == "inactive"
        await driver.until(lambda: driver.app.samples["lab1"].row.state == "stopped", "the screen shows it")
        await driver.choose("lab1", "start")
        await driver.confirm("lab1", "the engine loads")
        await driver.ended("lab1: ready")

    drive(test)
    assert active(kdops, "lab1") == "active", "closing the screen stops nothing"


def test_no_means_no(kdops: Deployer, drive: Callable[..., None]) -> None:
    before = invocation(kdops, "lab0")

    async def test(driver: Driver) -> None:
        await driver.choose("lab0", "stop")
        await driver.until(lambda: isinstance(driver.app.screen, Ask), "the question")
        await driver.press("enter", "n")
        await driver.pilot.pause(0.5)
        assert len(driver.app.screen_stack) == 1

    drive(test)
    assert invocation(kdops, "lab0") == before


def test_switch_profile_and_roll_back(kdops: Deployer, drive: Callable[..., None]) -> None:
    async def test(driver: Driver) -> None:
        await driver.choose("lab0", "profile")
        await driver.pick("ddtree")
        text = await driver.confirm("lab0", "its engine drains and stops")
        assert "release linear-" in text and "--profile ddtree" in text
        await driver.until(lambda: isinstance(driver.app.screen, Running), "it begins")
        lines = await driver.ended("serves (was linear-", 180)
        assert any("smoke test" in line for line in lines), lines
        assert kdops.serves().startswith("ddtree-")
        await driver.until(lambda: driver.app.samples["lab0"].row.profile == "ddtree", "the screen shows it")
        await driver.choose("lab0", "deploy")
        await driver.until(lambda: isinstance(driver.app.screen, Ask), "the question")
        await driver.press("n")
        await driver.choose("lab0", "rollback")
        await driver.confirm("lab0", "its engine drains and stops")
        await driver.ended("serves (was ddtree-", 180)
        assert kdops.serves().startswith("linear-")

    drive(test)


def test_what_fails_is_told_with_its_remedy(kdops: Deployer, drive: Callable[..., None]) -> None:
    async def test(driver: Driver) -> None:
        await driver.choose("lab1", "rollback")
        await driver.until(lambda: "no earlier release" in start.text_of(driver.app), "the refusal")

    drive(test)


def test_check_diagnose_and_report_read_a_host(
    kdops: Deployer, drive: Callable[..., None], tmp_path: Path
) -> None:
    before = invocation(kdops, "lab1")

    async def test(driver: Driver) -> None:
        await driver.choose("lab1", "check")
        lines = await driver.ended("kdops check has ended")
        assert lines[0].split() == ["STATE", "CHECK", "FOUND"], lines
        assert lines[-2].endswith("a deploy would be tried"), lines
        assert not [line for line in lines if line.startswith(("fail", "warn"))], lines

        caches = kdops.lab.ssh("lab1", "systemctl show -P CacheDirectory kdtree-lab1").split()
        (locked,) = (f"/var/cache/{one}/triton" for one in caches if not one.endswith("/hf"))
        kdops.lab.ssh("lab1", f"mkdir -m 700 {locked}")
        try:
            await driver.choose("lab1", "check")
            lines = await driver.ended("a deploy would be refused")
        finally:
            kdops.lab.ssh("lab1", f"rmdir {locked}")
        assert "user kdtree cannot write its cache" in lines[1] and "chown -R kdtree" in lines[2], lines

        await driver.choose("lab1", "diagnose")
        lines = await driver.ended("kdops diagnose has ended")
        assert lines[0].startswith("lab1 linear: ") and "finding" in lines[0], lines

        await driver.choose("lab1", "report")
        lines = await driver.ended("kdops report has ended")
        (archive,) = tmp_path.glob("kdops-report-lab1-*.tar.gz")
        assert lines[0] == archive.name, lines
        with tarfile.open(archive) as file:
            assert any("journal" in name for name in file.getnames())

    drive(test, write=False)
    assert invocation(kdops, "lab1") == before, "it is only read"


def test_read_only_offers_nothing_that_changes_a_host(kdops: Deployer, drive: Callable[..., None]) -> None:
    async def test(driver: Driver) -> None:
        await driver.press("a")
        await driver.pilot.pause()
        text = start.text_of(driver.app)
        assert text.count("needs --write") == 6
        await driver.press("enter")

    drive(test, write=False)


def test_the_host_view_asks_for_settings_unit_and_score(kdops: Deployer, drive: Callable[..., None]) -> None:
    async def test(driver: Driver) -> None:
        app = driver.app
        await driver.press("2")

        def asked() -> Details | None:
            return app.asking.details("lab0", app.samples["lab0"])

        await driver.until(asked, "the details")
        found = asked()
        assert found is not None and not found.problem
        rows = {row.key: row for row in found.settings}
        assert rows["engine_page_size"].value == "1" and "lab.yml" in rows["engine_page_size"].origin
        assert not [row for row in found.settings if row.note], "nothing differs"
        assert dict(found.unit)["ActiveState"] == "active"
        assert found.security
        await driver.press("d")
        await driver.until(lambda: (seen := app.asking.diagnosis("lab0")) and not seen.asking, "a diagnosis")
        diagnosed = app.asking.diagnosis("lab0")
        assert diagnosed is not None and not diagnosed.problem, diagnosed

    drive(test)


def test_the_journal_loses_no_line_and_shares_the_connection(
    kdops: Deployer, drive: Callable[..., None]
) -> None:
    def sessions() -> set[str]:
        """Processes of SSH sessions, this question's own ($PPID) left out."""
        return set(kdops.lab.ssh("lab0", "pgrep -f '[s]shd: root@' | grep -vx $PPID", check=False).split())

    others = sessions()

    async def test(driver: Driver) -> None:
        app = driver.app
        await driver.press("3")
        lines = app.journal.widget.lines
        await driver.until(lambda: len(lines), "the first lines")
        assert len(sessions() - others) == 1, "sampler and journal are one connection"
        kdops.lab.ssh("lab0", "systemctl restart kdtree-lab0")
        now = invocation(kdops, "lab0")
        await driver.until(lambda: any(entry.invocation == now for entry in lines), "the new start")
        there = int(kdops.lab.ssh("lab0", "journalctl -q -u kdtree-lab0 -o cat | wc -l"))
        await driver.until(lambda: len(lines) == there, f"{there} lines")
        assert len({entry.cursor for entry in lines}) == there

    drive(test)


def test_a_cut_link_and_its_return(kdops: Deployer, drive: Callable[..., None]) -> None:
    async def test(driver: Driver) -> None:
        app = driver.app
        kdops.lab.cut("lab1")
        try:
            await driver.until(lambda: app.samples["lab1"].row.state == "unreachable", "it is seen")
            lost = app.samples["lab1"]
            assert lost.row.profile == "linear" and lost.stale(app.feed.now())
            seen = app.samples["lab0"].at
            await driver.until(lambda: app.samples["lab0"].at > seen + 1, "the other host goes on")
        finally:
            kdops.lab.heal("lab1")
        await driver.until(lambda: app.samples["lab1"].row.state == "running", "it is back by itself")

    drive(test)


@pytest.mark.matrix
def test_polling_pauses_while_a_comparison_measures(kdops: Deployer, drive: Callable[..., None]) -> None:
    process = kdops.start("ab", "linear", "ddtree", "--host", "lab0", "--quick", "--seed", "1")
    states = set()

    async def test(driver: Driver) -> None:
        app = driver.app

        def done() -> bool:
            states.add("paused" if app.samples["lab0"].paused else app.samples["lab0"].row.state)
            return process.popen.poll() is not None

        await driver.press("4")
        await driver.until(done, "the comparison ends", 300)
        await driver.until(
            lambda: any("exploratory" in line for line in app.measuring.said), "its report", 20
        )

    drive(test)
    assert "paused" in states and "running" in states, states
    process.end()
    until(kdops.finished, "the transaction is over")


@pytest.mark.matrix
def test_a_comparison_from_the_first_key_to_its_report(kdops: Deployer, drive: Callable[..., None]) -> None:
    until(kdops.finished, "the transaction before is over")
    before = kdops.serves()
    seen: set[str] = set()

    async def test(driver: Driver) -> None:
        app = driver.app
        app.fleet.choose("lab0")
        await driver.press("4", "n")
        await driver.until(lambda: isinstance(app.screen, Arms), "the arms")
        offered = app.screen.query_one(SelectionList)
        names = [offered.get_option_at_index(i).value for i in range(offered.option_count)]
        for name in ("linear", "ddtree"):
            offered.highlighted = names.index(name)
            await driver.press("space")
        await driver.press("c")
        await driver.until(lambda: isinstance(app.screen, Choose), "the suites")
        await driver.pick("quick")
        await driver.until(lambda: isinstance(app.screen, Ask), "what it costs")
        asked = app.screen
        assert isinstance(asked, Ask)
        assert "lab0 serves nobody else" in asked.effect
        assert asked.command.startswith("kdops ab linear ddtree --host lab0 --seed ")
        assert asked.plan[0].startswith("3 starts and one to restore")
        await driver.press("y")
        await driver.until(lambda: isinstance(app.screen, Running), "it begins")
        box = app.screen
        assert isinstance(box, Running)
        await driver.press("escape")

        def over() -> bool:
            seen.update(app.measuring.said)
            return box.ended

        await driver.until(over, "the comparison ends", 300)
        said = [text for text, _ in box.said]
        assert said[-1].startswith("measured: no verdict"), said
        assert any(line.startswith("leg 2 of 3: ") for line in said), said
        await driver.until(lambda: "exploratory: one start an arm" in app.measuring.said, "its report")
        assert sum(": identical (" in line for line in app.measuring.said) == 2
        await driver.until(lambda: "= AL ÷ STEP" in start.text_of(app), "the report is drawn")
        assert "95 % INTERVAL" not in start.text_of(app)  # one start an arm has none
        assert "3/3" in start.text_of(app) and "done" in start.text_of(app)
        assert not any("not a verdict" in line for line in app.measuring.said)

    drive(test)
    assert any("measured now" in line for line in seen), seen
    assert any(line.startswith("ddtree: × ") and line.endswith("not a verdict yet") for line in seen), seen
    assert kdops.serves() == before


def test_record_then_replay_and_one_frame(kdops: Deployer, drive: Callable[..., None], tmp_path: Any) -> None:
    path = tmp_path / "session.jsonl"

    async def test(driver: Driver) -> None:
        await driver.press("3")
        await driver.until(lambda: driver.app.journal.widget.lines, "the first lines")
        await driver.pilot.pause(1.0)

    drive(test, record=path)
    code, frame, said = kdops.run("tui", "--once")
    assert code == 0, said
    assert "● running" in frame and "lab1" in frame
    command = [
        sys.executable,
        "-m",
        "kdops.cli.main",
        "tui",
        "--once",
        "--replay",
        str(path),
        "--speed",
        "50",
    ]
    played = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert played.returncode == 0, played.stderr
    assert "● running" in played.stdout and "replay" in played.stdout


def test_the_installed_command_in_a_real_terminal(kdops: Deployer) -> None:
    """tmux runs it as a person would: keys in, characters out, the shell back afterwards."""
    server, name = f"kdops-{os.getpid()}", "tui"

    def tmux(*words: str) -> str:
        done = subprocess.run(["tmux", "-L", server, *words], capture_output=True, text=True, timeout=20)
        return done.stdout

    installed = Path(sys.executable).parent / "kdops"
    command = f"{installed} tui -i {kdops.inventory}; echo left with $?; sleep 60"
    tmux("new-session", "-d", "-s", name, "-x", "80", "-y", "24", command)
    try:
        until(
            lambda: tmux("capture-pane", "-p", "-t", name).count("● running") == 2, "both hosts are shown", 30
        )
        assert "kdops" in tmux("capture-pane", "-p", "-t", name).splitlines()[0]
        tmux("send-keys", "-t", name, "3")
        until(lambda: "following" in tmux("capture-pane", "-p", "-t", name), "the journal", 30)
        tmux("send-keys", "-t", name, "q")
        until(lambda: "left with 0" in tmux("capture-pane", "-p", "-t", name), "it leaves", 30)
    finally:
        tmux("kill-server")
    assert active(kdops, "lab0") == "active"
