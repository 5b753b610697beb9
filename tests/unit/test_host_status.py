"""From the probe's JSON document to a status, also where the document is not what it should be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.host import on_host
from kdops.host.status import parse

pytestmark = pytest.mark.unit

UNIT = "kdtree-gpu1.service"


def report(**changes):
    base = {
        "unit": UNIT,
        "properties": {
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "NeedDaemonReload": "no",
            "DropInPaths": "",
            "StatusText": "running=1 queued=2 al=3.50",
            "StateChangeTimestampMonotonic": "4000000",
            "NRestarts": "2",
            "MemoryCurrent": "[not set]",
        },
        "unit_sha256": "aa",
        "current": "ddtree-0123456789",
        "manifest": {"profile": "ddtree", "files": {UNIT: "aa", "launch.yaml": "bb"}},
        "changed_files": [],
        "txn": {"committed": [{"release": "ddtree-0123456789"}], "transaction": None, "outcome": None},
        "boot_id": "b\n",
        "monotonic": 10.0,
        "boottime": 100.0,
        "errors": {},
    }
    return {**base, **changes}


def properties(**changes):
    return {"properties": {**report()["properties"], **changes}}


def test_a_healthy_host():
    found = parse("gpu1", report())
    assert (found.release, found.profile, found.committed) == (
        "ddtree-0123456789", "ddtree", ("ddtree-0123456789",)
    )  # fmt: skip
    assert (found.unit.since, found.unit.restarts, found.unit.memory) == (6.0, 2, None)
    assert found.unit.told == {"running": "1", "queued": "2", "al": "3.50"}
    assert found.drift == ()


@pytest.mark.parametrize(
    ("changes", "drift"),
    [
        ({"unit_sha256": "cc"}, "unit file edited"),
        ({"unit_sha256": None}, "unit file missing"),
        ({"changed_files": ["launch.yaml"]}, "release file launch.yaml changed"),
        (properties(NeedDaemonReload="yes"), "daemon-reload needed"),
        (properties(DropInPaths=f"/etc/systemd/system/{UNIT}.d/override.conf"), "drop-in /etc/systemd"),
    ],
)
def test_drift(changes, drift):
    found = parse("gpu1", report(**changes)).drift
    assert len(found) == 1
    assert found[0].startswith(drift)


@pytest.mark.parametrize(
    "path",
    [
        f"/run/systemd/system/{UNIT}.d/50-kdops-trial.conf",
        "/usr/lib/systemd/system/service.d/10-timeout-abort.conf",
    ],
)
def test_drop_ins_of_the_guard_and_of_the_distribution_are_no_drift(path):
    assert parse("gpu1", report(**properties(DropInPaths=path))).drift == ()


def test_without_a_manifest_there_is_nothing_to_compare():
    assert parse("gpu1", report(manifest=None, unit_sha256="x")).drift == ()


@pytest.mark.parametrize(
    ("lease", "left"),
    [
        ({"transaction": "t1", "until": 130.0}, 30.0),
        ({"transaction": "t1", "until": 90.0}, 0.0),
        ({"transaction": "other", "until": 130.0}, 0.0),
        (None, 0.0),
        ({"transaction": "t1", "until": "soon"}, 0.0),
    ],
)
def test_an_open_transaction_and_its_lease(lease, left):
    txn = {"id": "t1", "release": "r", "phase": "starting", "who": "ann", "boot_id": "b"}
    found = parse("gpu1", report(txn={"transaction": txn}, lease=lease)).transaction
    assert (found.release, found.phase, found.who, found.lease_left) == ("r", "starting", "ann", left)


def test_a_reboot_ends_the_lease():
    txn = {"id": "t1", "release": "r", "phase": "starting", "boot_id": "another"}
    found = parse("g", report(txn={"transaction": txn}, lease={"transaction": "t1", "until": 130.0}))
    assert found.transaction.lease_left == 0


def test_the_last_outcome_keeps_its_reason():
    failure = {"title": "did not start", "cause": "no memory", "remedy": "less", "code": 6, "evidence": []}
    outcome = {
        "result": "rolled-back",
        "release": "r2",
        "serves": "r1",
        "by": "guard",
        "at": "t",
        "failure": failure,
    }
    found = parse("gpu1", report(txn={"outcome": outcome})).outcome
    assert (found.result, found.serves, found.failure) == (
        "rolled-back",
        "r1",
        ("did not start", "no memory", "less"),
    )


@pytest.mark.parametrize(
    ("engine", "health"),
    [
        ({"health": 200}, "ok"),
        ({"health": 503}, "starting"),
        ({"health": 500}, "http 500"),
        ({"health": None, "health_error": "[Errno 111] Connection refused"}, "refused"),
        ({"health": None, "health_error": "timed out"}, "no answer"),
    ],
)
def test_health(engine, health):
    assert parse("gpu1", report(engine=engine)).engine.health == health


@pytest.mark.parametrize(
    ("bind", "address"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("127.0.0.2", "127.0.0.2"), (None, "127.0.0.1")],
)
def test_the_engine_is_reached_where_it_listens(tmp_path, bind, address):
    told = on_host.engine(tmp_path / "no key", {"settings": {"bind": bind, "port": 1}}, 30000)
    engine = parse("g", report(engine=told)).engine
    assert (engine.address, engine.port) == (address, 1)


def test_gpu_values_the_driver_does_not_have():
    row = ["0", "NVIDIA H200", "1024", "143771", "[N/A]", "41", "[Unknown Error]", "1980"]
    (gpu,) = parse("gpu1", report(gpus=[row])).gpus
    assert (gpu.memory_used, gpu.utilization, gpu.temperature, gpu.power) == (1024, None, 41, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)
INNER = st.sampled_from(
    [
        "release",
        "id",
        "until",
        "transaction",
        "committed",
        "outcome",
        "failure",
        "files",
        "NRestarts",
        "health",
    ]
)


@given(
    st.dictionaries(
        st.sampled_from([*report(), "engine", "gpus", "lease", "load"]), JSON | st.dictionaries(INNER, JSON)
    )
)
def test_no_document_breaks_the_status(document):
    found = parse("gpu1", json.loads(json.dumps({**report(), **document})))
    assert found.host == "gpu1"
