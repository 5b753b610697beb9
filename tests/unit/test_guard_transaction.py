"""The transaction without systemd: every phase, left by its client, ends in a release that serves."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from guard_host import UNIT, GuardHost, files, make_host, request, upload

from kdops.errors import ExitCode, KdopsError
from kdops.guard import transaction as t
from kdops.guard.checks.ask import Question
from kdops.guard.drift import drift
from kdops.guard.model import Phase, Result, State
from kdops.guard.preflight import preflight
from kdops.guard.store import write_atomic
from kdops.guard.tick import tick

pytestmark = pytest.mark.unit
PHASES = list(Phase)


@pytest.fixture
def host(tmp_path: Path) -> GuardHost:
    return make_host(tmp_path)


def advance(host: GuardHost, release: str, until: Phase, id_: str = "c1", **more: Any) -> None:
    """Drive a deploy of `release` up to and including the phase `until`."""
    ctx = host.ctx
    t.begin(ctx, request(release, id_, **more))
    if until is Phase.LOCKED:
        return
    t.uploading(ctx, id_)
    upload(host, files(release))
    if until is Phase.UPLOADING:
        return
    t.upload_done(ctx, id_)
    t.switch(ctx, id_)
    if until is Phase.SWITCHING:
        return
    t.start(ctx, id_)
    if until is Phase.STARTING:
        return
    if until is Phase.RESTORING:
        t.restore(ctx, id_, "test")
        return
    t.smoke(ctx, id_)


def deploy(host: GuardHost, release: str, id_: str = "c1") -> dict[str, Any]:
    advance(host, release, Phase.SMOKED, id_)
    return t.commit(host.ctx, id_)


def state(host: GuardHost) -> State:
    return host.ctx.store.load()


def serves(host: GuardHost) -> str:
    """The release whose unit is installed and active, or 'nothing'."""
    return host.systemd.serving(UNIT) if host.systemd.show(UNIT).active == "active" else "nothing"


def test_commit_records_the_release_and_arms_the_restart(host: GuardHost) -> None:
    outcome = deploy(host, "linear-1")["outcome"]
    assert (outcome["result"], outcome["serves"]) == (Result.COMMITTED, "linear-1")
    assert serves(host) == "linear-1"
    assert not host.layout.trial(UNIT).exists()
    assert host.systemd.show(UNIT).enabled == "enabled"
    assert state(host).transaction is None
    assert json.loads(host.layout.audit.read_text())["who"] == "ann"
    assert host.layout.current.resolve().name == "linear-1"


@pytest.mark.parametrize("phase", [p for p in PHASES if p is not Phase.RESTORING])
def test_a_client_that_never_comes_back_leaves_a_release_serving(host: GuardHost, phase: Phase) -> None:
    deploy(host, "linear-1")
    advance(host, "ddtree-2", phase, "c2")
    assert tick(host.ctx)["open"], "a live lease must keep the guard away"
    host.expire()
    for _ in range(3):
        tick(host.ctx)
    finished = phase in (Phase.STARTING, Phase.SMOKED)
    assert serves(host) == ("ddtree-2" if finished else "linear-1")
    assert state(host).transaction is None
    outcome = state(host).outcome
    assert outcome is not None
    assert outcome.by == "guard"
    assert outcome.serves == serves(host)
    assert not host.layout.partial.exists()
    assert not host.layout.trial(UNIT).exists()


@pytest.mark.parametrize("phase", PHASES)
def test_reboot_in_every_phase(host: GuardHost, phase: Phase) -> None:
    deploy(host, "linear-1")
    advance(host, "ddtree-2", phase, "c2")
    host.reboot()
    tick(host.ctx)
    host.systemd.start(UNIT)  # what systemd does after the guard's boot service: the unit is enabled
    for _ in range(3):
        tick(host.ctx)
    assert serves(host) == ("ddtree-2" if phase is Phase.SMOKED else "linear-1")
    assert state(host).transaction is None


@pytest.mark.parametrize("phase", [Phase.SWITCHING, Phase.STARTING])
def test_first_deploy_that_fails_is_stopped_with_its_reason(host: GuardHost, phase: Phase) -> None:
    host.systemd.will["ddtree-1"] = "failed"
    advance(host, "ddtree-1", phase)
    host.expire()
    tick(host.ctx)
    outcome = state(host).outcome
    assert outcome is not None
    assert (outcome.result, outcome.serves) == (Result.STOPPED, None)
    assert outcome.failure is not None
    assert host.systemd.show(UNIT).active == "inactive"
    assert host.systemd.show(UNIT).enabled == "disabled"
    assert not host.layout.current.is_symlink()


def test_failed_start_rolls_back_and_says_why(host: GuardHost) -> None:
    deploy(host, "linear-1")
    host.systemd.will["ddtree-2"] = "failed"
    advance(host, "ddtree-2", Phase.STARTING, "c2")
    seen = t.wait(host.ctx, "c2")
    assert seen["settled"]
    assert seen["failure"]["evidence"] == ("last words of run-" + str(host.systemd.count),)
    t.restore(host.ctx, "c2", "")
    outcome = t.wait(host.ctx, "c2")["outcome"]
    assert (outcome["result"], outcome["serves"]) == (Result.ROLLED_BACK, "linear-1")
    assert serves(host) == "linear-1"


def test_old_engine_is_not_touched_when_the_new_one_never_started(host: GuardHost) -> None:
    deploy(host, "linear-1")
    before = host.systemd.show(UNIT).invocation
    advance(host, "ddtree-2", Phase.SWITCHING, "c2")
    assert t.restore(host.ctx, "c2", "link lost")["outcome"]["result"] == Result.ROLLED_BACK
    assert host.systemd.show(UNIT).invocation == before


def test_engine_that_never_gets_ready_is_given_up(host: GuardHost) -> None:
    deploy(host, "linear-1")
    host.systemd.will["ddtree-2"] = "activating"
    advance(host, "ddtree-2", Phase.STARTING, "c2", ready_timeout=60.0)
    assert not t.wait(host.ctx, "c2")["settled"]
    host.clock.now += 61
    assert "not ready after" in t.wait(host.ctx, "c2")["failure"]["title"]


def test_guard_waits_for_a_loading_engine_then_gives_up(host: GuardHost) -> None:
    deploy(host, "linear-1")
    host.systemd.will["ddtree-2"] = "activating"
    advance(host, "ddtree-2", Phase.STARTING, "c2", ready_timeout=50_000.0)
    host.expire()
    assert tick(host.ctx) == {"open": True, "phase": Phase.STARTING}
    host.clock.now += 50_000
    tick(host.ctx)
    tick(host.ctx)
    assert serves(host) == "linear-1"


def test_bad_smoke_test_rolls_back(host: GuardHost) -> None:
    deploy(host, "linear-1")
    advance(host, "ddtree-2", Phase.STARTING, "c2")
    host.smoke["error"] = KdopsError("other settings", cause="x", remedy="y", code=ExitCode.ROLLED_BACK)
    with pytest.raises(KdopsError, match="other settings"):
        t.smoke(host.ctx, "c2")
    t.restore(host.ctx, "c2", "")
    outcome = t.wait(host.ctx, "c2")["outcome"]
    assert outcome["failure"]["title"] == "other settings"
    assert serves(host) == "linear-1"


def test_engine_that_dies_between_smoke_test_and_commit(host: GuardHost) -> None:
    deploy(host, "linear-1")
    advance(host, "ddtree-2", Phase.SMOKED, "c2")
    host.systemd.becomes(UNIT, "failed")
    t.commit(host.ctx, "c2")
    assert t.wait(host.ctx, "c2")["outcome"]["result"] == Result.ROLLED_BACK
    assert serves(host) == "linear-1"


def test_rollback_that_fails_too_says_so(host: GuardHost) -> None:
    deploy(host, "linear-1")
    host.systemd.will.update({"ddtree-2": "failed", "linear-1": "failed"})
    advance(host, "ddtree-2", Phase.STARTING, "c2")
    t.restore(host.ctx, "c2", "")
    outcome = t.wait(host.ctx, "c2")["outcome"]
    assert (outcome["result"], outcome["serves"]) == (Result.ROLLBACK_FAILED, None)


def test_second_client_is_refused_and_told_who_holds_the_lock(host: GuardHost) -> None:
    advance(host, "linear-1", Phase.LOCKED, why="new drafter")
    with pytest.raises(KdopsError) as caught:
        t.begin(host.ctx, request("ddtree-2", "c2"))
    assert caught.value.code is ExitCode.LOCKED
    assert "ann deploys linear-1 (new drafter)" in caught.value.cause


def test_lock_of_a_dead_client_is_taken_over_after_its_transaction_ended(host: GuardHost) -> None:
    deploy(host, "linear-1")
    advance(host, "ddtree-2", Phase.SWITCHING, "c2")
    host.expire()
    assert t.begin(host.ctx, request("ddtree-3", "c3"))["changed"]
    lines = [json.loads(line) for line in host.layout.audit.read_text().splitlines()]
    assert [line["result"] for line in lines] == [Result.COMMITTED, Result.ROLLED_BACK]
    with pytest.raises(KdopsError, match="no longer open"):
        t.start(host.ctx, "c2")


def test_same_release_again_changes_nothing(host: GuardHost) -> None:
    deploy(host, "linear-1")
    before, calls = host.layout.transaction.read_bytes(), len(host.systemd.calls)
    assert t.begin(host.ctx, request("linear-1", "c2"))["changed"] is False
    assert host.layout.transaction.read_bytes() == before
    assert len(host.systemd.calls) == calls


@pytest.mark.parametrize("edit", ["unit", "launch.yaml", "site/kdtree_engine/__init__.py"])
def test_edited_files_are_drift_and_deployed_again(host: GuardHost, edit: str) -> None:
    deploy(host, "linear-1")
    release = host.layout.releases / "linear-1"
    (host.layout.units / UNIT if edit == "unit" else release / edit).write_text("edited")
    assert t.begin(host.ctx, request("linear-1", "c2"))["changed"] is True


@pytest.mark.parametrize("target", ["releases/nope", None])
def test_a_link_to_elsewhere_is_drift_and_set_right(host: GuardHost, target: str | None) -> None:
    deploy(host, "linear-1")
    host.layout.current.unlink()
    if target:
        host.layout.current.symlink_to(target)
    assert any("current points to" in line for line in drift(host.ctx, host.ctx.store.load()))
    deploy(host, "linear-1", "c2")
    assert str(host.layout.current.readlink()) == "releases/linear-1"


def test_dropins_are_set_aside_and_come_back_when_the_release_does_not_stay(host: GuardHost) -> None:
    deploy(host, "linear-1")
    override = host.layout.dropins(UNIT) / "override.conf"
    override.parent.mkdir(parents=True)
    override.write_text("[Service]\nNice=5\n")
    advance(host, "ddtree-2", Phase.UPLOADING, "c2")
    t.upload_done(host.ctx, "c2")
    assert t.switch(host.ctx, "c2")["set_aside"] == [str(override)]
    assert not override.exists()
    t.restore(host.ctx, "c2", "")
    assert override.read_text() == "[Service]\nNice=5\n"


def test_dropins_replaced_by_a_committed_release_are_kept_where_the_answer_says(host: GuardHost) -> None:
    deploy(host, "linear-1")
    override = host.layout.dropins(UNIT) / "override.conf"
    override.parent.mkdir(parents=True)
    override.write_text("[Service]\nNice=5\n")
    advance(host, "ddtree-2", Phase.UPLOADING, "c2")
    t.upload_done(host.ctx, "c2")
    kept = Path(t.switch(host.ctx, "c2")["kept_in"])
    t.start(host.ctx, "c2")
    t.smoke(host.ctx, "c2")
    t.commit(host.ctx, "c2")
    assert (kept / f"{UNIT}.d" / "override.conf").read_text() == "[Service]\nNice=5\n"
    deploy(host, "linear-3", "c3")
    host.systemd.will["ddtree-4"] = "failed"
    advance(host, "ddtree-4", Phase.STARTING, "c4")
    t.restore(host.ctx, "c4", "")
    assert not override.exists(), "a later rollback must not bring them back"


def test_drop_ins_of_the_distribution_are_no_drift(host: GuardHost) -> None:
    deploy(host, "linear-1")
    theirs = "/usr/lib/systemd/system/service.d/10-timeout.conf"
    by_hand = f"/etc/systemd/system/{UNIT}.d/x.conf"
    host.systemd.becomes(UNIT, "active", dropins=f"{theirs} {by_hand}")
    assert drift(host.ctx, state(host)) == [f"drop-in {by_hand} (systemctl edit)"]


def test_old_engine_that_restarted_by_itself_during_the_upload_is_not_taken_for_the_new_one(
    host: GuardHost,
) -> None:
    deploy(host, "linear-1")
    advance(host, "ddtree-2", Phase.UPLOADING, "c2")
    host.systemd.becomes(UNIT, "active", invocation="restarted-by-itself")
    t.upload_done(host.ctx, "c2")
    t.switch(host.ctx, "c2")
    host.systemd.restart = lambda unit: None  # type: ignore[method-assign]  # the job is not run yet
    t.start(host.ctx, "c2")
    seen = t.wait(host.ctx, "c2")
    assert (seen["engine"], seen["settled"]) == ("old", False)


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat writes the lease without the mutex, in the middle of another command's write of it."""
    lease, real = tmp_path / "lease.json", os.fsync
    inner = iter([b"heartbeat"])

    def meanwhile(handle: int) -> None:
        for content in inner:
            write_atomic(lease, content)
        real(handle)

    monkeypatch.setattr(os, "fsync", meanwhile)
    write_atomic(lease, b"wait")
    assert lease.read_bytes() == b"wait"
    assert [path.name for path in tmp_path.iterdir()] == ["lease.json"]


def test_crash_while_a_serving_release_is_replaced_does_not_lose_it(
    host: GuardHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(host, "linear-1")
    unit = host.layout.releases / "linear-1" / UNIT
    (unit.parent / "launch.yaml").write_text("edited")
    advance(host, "linear-1", Phase.UPLOADING, "c2")
    real = Path.rename

    def dies(self: Path, target: Path) -> Path:
        if self.parent == host.layout.partial:
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", dies)
        t.upload_done(host.ctx, "c2")
    host.reboot()
    tick(host.ctx)
    assert unit.is_file()
    deploy(host, "linear-1", "c3")
    assert sorted(path.name for path in host.layout.releases.iterdir()) == ["linear-1"]


def test_full_disk_still_lets_the_end_be_recorded(host: GuardHost, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(host, "linear-1")
    advance(host, "ddtree-2", Phase.UPLOADING, "c2")
    reserve = host.layout.state / ".reserve"
    real = Path.replace

    def full(self: Path, target: Path) -> Path:
        if self.name.startswith(".txn.json") and reserve.exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    assert t.restore(host.ctx, "c2", "disk full")["outcome"]["result"] == Result.ABORTED


def test_bundle_that_lacks_a_file_or_was_changed_is_refused(host: GuardHost) -> None:
    bundle = files("linear-1")
    missing = {name: body for name, body in bundle.items() if name != "engine.env"}
    for broken in ({**bundle, "launch.yaml": b"other"}, missing):
        t.begin(host.ctx, request("linear-1"))
        t.uploading(host.ctx, "c1")
        upload(host, broken)
        with pytest.raises(KdopsError, match="did not arrive whole"):
            t.upload_done(host.ctx, "c1")
        assert not (host.layout.releases / "linear-1").exists()


def test_bundle_cannot_write_outside_its_folder(host: GuardHost) -> None:
    t.begin(host.ctx, request("linear-1"))
    t.uploading(host.ctx, "c1")
    upload(host, {**files("linear-1"), "../../../evil": b"x"})
    with pytest.raises(KdopsError, match="did not arrive whole"):
        t.upload_done(host.ctx, "c1")
    assert not list(host.layout.root.rglob("evil"))


def test_adopted_service_is_replaced_and_can_be_rolled_back_to(host: GuardHost) -> None:
    host.systemd.restart("sglang.service")
    host.systemd.enable("sglang.service")
    advance(host, "linear-1", Phase.SMOKED, adopt="sglang.service")
    t.commit(host.ctx, "c1")
    assert host.systemd.show("sglang.service").active == "inactive"
    assert host.systemd.show("sglang.service").enabled == "disabled"
    assert [c.release for c in state(host).committed] == ["unit:sglang.service", "linear-1"]
    t.begin(host.ctx, request("unit:sglang.service", "c2"))
    t.switch(host.ctx, "c2")
    t.start(host.ctx, "c2")
    t.smoke(host.ctx, "c2")
    t.commit(host.ctx, "c2")
    assert host.systemd.show("sglang.service").active == "active"
    assert host.systemd.show("sglang.service").enabled == "enabled"
    assert host.systemd.show(UNIT).active == "inactive"


def test_failed_first_deploy_brings_the_adopted_service_back(host: GuardHost) -> None:
    host.systemd.restart("sglang.service")
    host.systemd.enable("sglang.service")
    host.systemd.will["linear-1"] = "failed"
    advance(host, "linear-1", Phase.STARTING, adopt="sglang.service")
    t.restore(host.ctx, "c1", "")
    outcome = t.wait(host.ctx, "c1")["outcome"]
    assert (outcome["result"], outcome["serves"]) == (Result.ROLLED_BACK, "unit:sglang.service")
    assert host.systemd.show("sglang.service").active == "active"


def test_five_releases_are_kept(host: GuardHost) -> None:
    for number in range(7):
        deploy(host, f"linear-{number}", f"c{number}")
    committed = state(host).committed
    assert [c.release for c in committed] == [f"linear-{n}" for n in range(2, 7)]


def test_api_key_is_blanked_in_evidence(host: GuardHost, monkeypatch: pytest.MonkeyPatch) -> None:
    key = host.layout.api_key("lab")
    key.parent.mkdir(parents=True)
    key.write_text("s3cret\n")
    monkeypatch.setattr(host.systemd, "journal", lambda *_: ("api_key='s3cret'",))
    host.systemd.will["linear-1"] = "failed"
    advance(host, "linear-1", Phase.STARTING)
    assert t.wait(host.ctx, "c1")["failure"]["evidence"] == ("api_key='***'",)
    assert "s3cret" not in host.layout.transaction.read_text()


def test_api_key_goes_with_the_commit_of_a_release_without_one(host: GuardHost) -> None:
    key = host.layout.api_key("lab")
    key.parent.mkdir(parents=True)
    key.write_text("s3cret")
    deploy(host, "linear-1")
    manifest = host.layout.releases / "linear-1/manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "settings": {"api_key_file": "k"}}))
    assert not key.exists()
    deploy(host, "linear-2", "c2")
    t.begin(host.ctx, request("linear-1", "c3"))
    with pytest.raises(KdopsError, match="API key of release linear-1 is not on this host"):
        t.switch(host.ctx, "c3")
    assert serves(host) == "linear-2"


@pytest.mark.parametrize(("venv", "fits"), [("abcdefabcdef", True), ("000000000000", False)])
def test_an_environment_to_build_counts_for_the_disk(host: GuardHost, venv: str, fits: bool) -> None:
    (host.layout.venvs / "abcdefabcdef/bin/python").chmod(0o755)
    manifest = {"lock_digest": venv, "port": 1, "unit": UNIT}
    found = preflight(host.ctx, Question(manifest, 1, 10**18))
    assert ("disk" not in [row.check for row in found]) is fits


def trial(host: GuardHost, release: str, id_: str = "ab") -> None:
    """One leg of an A/B: the same transaction goes on with another release."""
    advance(host, release, Phase.SMOKED, id_, trial=True, force=True)


def test_a_trial_goes_from_release_to_release_and_back(host: GuardHost) -> None:
    deploy(host, "v1")
    for release in ("v2", "v3", "v3"):
        trial(host, release)
        assert serves(host) == release
    starts = len([call for call in host.systemd.calls if call.startswith(f"start {UNIT}")])
    assert starts == 4, "every leg is a start of its own, the same release too"
    assert not t.restore(host.ctx, "ab", "over")["closed"]
    ended = t.wait(host.ctx, "ab")
    assert ended["outcome"]["result"] == Result.TRIED
    assert serves(host) == "v1"
    assert [c.release for c in state(host).committed] == ["v1"], "a rollback never sees a trial"
    assert sorted(p.name for p in host.layout.releases.iterdir()) == ["v1"], "trial releases are pruned"


@pytest.mark.parametrize("phase", [p for p in PHASES if p is not Phase.RESTORING])
@pytest.mark.parametrize("legs", [0, 2])
def test_a_vanished_trial_is_undone_in_every_phase(host: GuardHost, phase: Phase, legs: int) -> None:
    deploy(host, "v1")
    for _ in range(legs):
        trial(host, "v2")
    advance(host, "v3", phase, "ab", trial=True, force=True)
    before = host.systemd.calls.count(f"start {UNIT}")
    host.expire()
    for _ in range(3):
        tick(host.ctx)
    assert state(host).transaction is None
    assert serves(host) == "v1"
    stopped = legs > 0 or phase in (Phase.STARTING, Phase.SMOKED)
    assert host.systemd.calls.count(f"start {UNIT}") - before == stopped, (
        "its engine starts if it had stopped"
    )
    assert [c.release for c in state(host).committed] == ["v1"]


@pytest.mark.parametrize("legs", [1, 3])
def test_a_reboot_ends_a_trial(host: GuardHost, legs: int) -> None:
    deploy(host, "v1")
    for _ in range(legs):
        trial(host, "v2")
    host.reboot()
    for _ in range(3):
        tick(host.ctx)
    assert state(host).transaction is None
    assert serves(host) == "v1"


def test_a_trial_whose_start_fails_goes_back(host: GuardHost) -> None:
    deploy(host, "v1")
    trial(host, "v2")
    host.systemd.will["v3"] = "failed"
    advance(host, "v3", Phase.STARTING, "ab", trial=True, force=True)
    assert t.wait(host.ctx, "ab")["failure"]
    t.restore(host.ctx, "ab", "start failed")
    assert t.wait(host.ctx, "ab")["outcome"]["result"] == Result.ROLLED_BACK
    assert serves(host) == "v1"


def test_a_trial_is_never_committed(host: GuardHost) -> None:
    deploy(host, "v1")
    trial(host, "v2")
    with pytest.raises(KdopsError):
        t.commit(host.ctx, "ab")
    with pytest.raises(KdopsError) as caught:
        t.begin(host.ctx, request("v4", "other"))
    assert caught.value.code == ExitCode.LOCKED
    with pytest.raises(KdopsError):
        t.begin(host.ctx, request("v3", "ab", trial=True, unit="kdtree-other.service"))


def test_a_trial_on_a_host_that_served_nothing_leaves_nothing(host: GuardHost) -> None:
    trial(host, "v1")
    assert t.restore(host.ctx, "ab", "over")["outcome"]["result"] == Result.STOPPED
    assert serves(host) == "nothing"
