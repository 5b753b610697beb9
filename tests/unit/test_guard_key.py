"""The API key through a deploy: a key goes back with the release it belongs to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from guard_host import GuardHost, files, make_host, request, upload

from kdops.errors import KdopsError
from kdops.guard import transaction as t
from kdops.guard.model import Phase
from kdops.guard.tick import tick

pytestmark = pytest.mark.unit
ORDER = (Phase.LOCKED, Phase.UPLOADING, Phase.SWITCHING, Phase.STARTING, Phase.SMOKED)


@pytest.fixture
def host(tmp_path: Path) -> GuardHost:
    return make_host(tmp_path)


def keyed(release: str) -> dict[str, bytes]:
    bundle = files(release)
    manifest = {**json.loads(bundle["manifest.json"]), "settings": {"api_key_file": "k"}}
    return {**bundle, "manifest.json": json.dumps(manifest).encode()}


def advance(host: GuardHost, release: str, key: str, until: Phase, id_: str, *, trial: bool = False) -> None:
    """Drive a deploy up to and including `until`, as the playbook does: the key arrives once it is open."""
    t.begin(host.ctx, request(release, id_, trial=trial, force=True))
    if until is Phase.LOCKED:
        return
    arrived = host.layout.new_key("lab")
    arrived.parent.mkdir(parents=True, exist_ok=True)
    arrived.write_text(key)
    t.uploading(host.ctx, id_)
    upload(host, keyed(release))
    if until is Phase.UPLOADING:
        return
    t.upload_done(host.ctx, id_)
    for phase, step in ((Phase.SWITCHING, t.switch), (Phase.STARTING, t.start), (Phase.SMOKED, t.smoke)):
        step(host.ctx, id_)
        if until is phase:
            return


def deploy(host: GuardHost, release: str, key: str, id_: str) -> None:
    advance(host, release, key, Phase.SMOKED, id_)
    t.commit(host.ctx, id_)


def in_use(host: GuardHost) -> str:
    return host.layout.api_key("lab").read_text()


def left_over(host: GuardHost) -> list[Path]:
    return [path for path in (host.layout.new_key("lab"), host.layout.old_key("lab")) if path.exists()]


def test_a_key_changes_with_the_switch_and_stays_with_the_commit(host: GuardHost) -> None:
    deploy(host, "v1", "one", "c1")
    advance(host, "v1", "two", Phase.UPLOADING, "c2")
    assert in_use(host) == "one", "the engine that serves still has it"
    t.upload_done(host.ctx, "c2")
    t.switch(host.ctx, "c2")
    t.switch(host.ctx, "c2")
    assert in_use(host) == "two"
    t.start(host.ctx, "c2")
    t.smoke(host.ctx, "c2")
    t.commit(host.ctx, "c2")
    assert in_use(host) == "two"
    assert left_over(host) == []


@pytest.mark.parametrize("phase", ORDER[:-1])
@pytest.mark.parametrize("who", ["client", "guard", "guard after a reboot"])
def test_a_key_goes_back_with_its_release(host: GuardHost, phase: Phase, who: str) -> None:
    deploy(host, "v1", "one", "c1")
    host.systemd.will["v2"] = "failed"
    advance(host, "v2", "two", phase, "c2")
    if who == "client":
        t.restore(host.ctx, "c2", "test")
        t.wait(host.ctx, "c2")
    elif who == "guard":
        host.expire()
    else:
        host.reboot()
    for _ in range(3):
        tick(host.ctx)
    assert host.ctx.store.load().transaction is None
    assert in_use(host) == "one"
    assert left_over(host) == []


def test_a_trial_of_many_legs_gives_back_what_served_before(host: GuardHost) -> None:
    deploy(host, "v1", "one", "c1")
    for key in ("two", "three"):
        advance(host, "v2", key, Phase.SMOKED, "ab", trial=True)
        assert in_use(host) == key
    t.restore(host.ctx, "ab", "over")
    t.wait(host.ctx, "ab")
    assert in_use(host) == "one"
    assert left_over(host) == []


def test_a_key_kept_by_a_deploy_that_crashed_at_its_end_comes_never_back(host: GuardHost) -> None:
    deploy(host, "v1", "one", "c1")
    host.layout.old_key("lab").parent.mkdir(exist_ok=True)
    host.layout.old_key("lab").write_text("ancient")
    host.systemd.will["v2"] = "failed"
    advance(host, "v2", "two", Phase.STARTING, "c2")
    t.restore(host.ctx, "c2", "test")
    t.wait(host.ctx, "c2")
    assert in_use(host) == "one"


def test_the_first_key_is_used_and_none_is_needed_before(host: GuardHost) -> None:
    deploy(host, "v1", "one", "c1")
    assert in_use(host) == "one"
    host.layout.api_key("lab").unlink()
    t.begin(host.ctx, request("v1", "c2", force=True))
    with pytest.raises(KdopsError, match="API key of release v1 is not on this host"):
        t.switch(host.ctx, "c2")


def test_every_key_is_blanked_in_evidence(host: GuardHost) -> None:
    deploy(host, "v1", "first-key", "c1")
    advance(host, "v1", "second-key", Phase.SWITCHING, "c2")
    host.layout.new_key("lab").write_text("third-key")
    assert host.ctx.clean(("first-key second-key third-key",)) == ("*** *** ***",)
