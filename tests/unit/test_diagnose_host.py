"""A host's answers, as recorded, to evidence and findings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kdops.diagnose.apply import diagnose
from kdops.diagnose.evidence import Evidence
from kdops.fleet import engine_config, load
from kdops.fleet.changes import expected_server_info
from kdops.fleet.settings import values
from kdops.host.connection import RunResult
from kdops.observe.evidence import from_host
from kdops.store import Mark, Store

pytestmark = pytest.mark.unit

ARGV = ("recorded",)
HOST = load(None).one("ct200")
SETTINGS = {**values(engine_config(HOST, "linear", {})), "environment": {}, "extra_args": {}}
READY = (
    "Starting kdtree-ct200.service - SGLang...\n"
    "max_total_num_tokens=240000, chunked_prefill_size=8192, context_len=200000, available_gpu_mem=9.1 GB\n"
    "kdtree: ready; imports 9.8 s, weights 402.1 s\n"
)


class Recorded:
    """Stands in for the connection: the answers of one host."""

    host = HOST

    def __init__(self, **report: Any) -> None:
        self.journal = READY
        self.unit = "ActiveState=active\nNRestarts=0\nCPUQuotaPerSecUSec=infinity\n"
        self.manifests: dict[str, Any] = {"linear-1": {"profile": "linear", "settings": SETTINGS}}
        self.report = {
            "unit": "kdtree-ct200.service",
            "properties": {"LoadState": "loaded", "ActiveState": "active", "NRestarts": "0"},
            "current": "linear-1",
            "txn": {"committed": [{"release": "linear-0"}, {"release": "linear-1"}]},
            "engine": {"port": 30000, "health": 200, "server_info": expected_server_info(SETTINGS)},
            "gpus": [["0", "NVIDIA", "90000", "97887", "3", "40", "90", "2300", "0x0000000000000001"]],
            **report,
        }

    def run(self, argv: Sequence[str], **_: Any) -> RunResult:
        if argv[0] == "python3":
            return RunResult(ARGV, 0, json.dumps(self.report).encode(), b"")
        if "manifest.json" in argv[2]:
            return RunResult(ARGV, 0, json.dumps(self.manifests.get(argv[-1], "")).encode(), b"")
        return RunResult(ARGV, 0, self.unit.encode(), b"")

    def stream(self, argv: Sequence[str]) -> Iterator[bytes]:
        assert argv[0] == "journalctl"
        yield self.journal.encode()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "m.sqlite")


def evidence(recorded: Recorded, store: Store) -> Evidence:
    return from_host(HOST, recorded, store)  # type: ignore[arg-type]


def ids(recorded: Recorded, store: Store) -> list[str]:
    return [finding.id for finding in diagnose(evidence(recorded, store))]


def test_a_healthy_host(store: Store) -> None:
    found = evidence(Recorded(), store)
    assert diagnose(found) == ()
    assert found.floor == pytest.approx(70272 / 1.597e12)
    assert found.absent == {"measurement": "none of this release: kdops bench ct200"}


def test_a_measurement_of_its_release_that_cannot_be_read_is_told(store: Store) -> None:
    plan = {"arms": [{"name": "linear", "release": "linear-1"}], "order": [0], "reference": False}
    store.open_run("r1", "ct200", "2026-11-01T00:00:00+00:00", plan)
    store.set_state("r1", "done", {})
    assert evidence(Recorded(), store).absent["measurement"].startswith("run r1 is not complete: ")


def test_a_host_without_anything_deployed(store: Store) -> None:
    bare = Recorded(current=None, txn=None, engine=None, gpus=[], properties={})
    bare.journal, bare.unit, bare.manifests = "", "", {}
    found = evidence(bare, store)
    assert diagnose(found) == ()
    assert {"settings", "server_info", "GPUs", "measurement"} <= set(found.absent)


def test_a_crash_is_tied_to_what_the_last_good_release_had_otherwise(store: Store) -> None:
    down = Recorded(
        properties={"LoadState": "loaded", "ActiveState": "failed", "NRestarts": "3"}, engine=None
    )
    down.unit = "ActiveState=failed\nNRestarts=3\n"
    down.journal += "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    down.journal += "kdtree-ct200.service: Main process exited, code=exited, status=71/OSERR\n"
    down.manifests["linear-0"] = {"settings": {**SETTINGS, "memory_fraction": 0.8}}
    finding = diagnose(evidence(down, store))[0]
    assert finding.id == "illegal-memory-access"
    assert "differs from the last good release: memory_fraction 0.8 → 0.9" in finding.evidence


@pytest.mark.parametrize(
    ("load", "title", "remedy"),
    [
        ("loaded", "the service is stopped", "kdops start ct200"),
        ("masked", "kdtree-ct200.service is masked", "kdops deploy ct200"),
        ("not-found", "nothing is deployed", "kdops deploy ct200"),
    ],
)
def test_a_service_that_is_down_without_a_failure(store: Store, load: str, title: str, remedy: str) -> None:
    down = Recorded(properties={"LoadState": load, "ActiveState": "inactive"}, engine=None)
    down.unit = f"Id=kdtree-ct200.service\nLoadState={load}\nActiveState=inactive\n"
    down.unit += "StateChangeTimestamp=Mon 2026-11-30 01:00:00 UTC\n"
    (finding,) = diagnose(evidence(down, store))
    assert (finding.id, finding.severity, finding.remedy) == ("not-running", "wrong", remedy)
    assert title in finding.title
    assert finding.evidence == ("unit inactive since Mon 2026-11-30 01:00:00 UTC",)


@pytest.mark.parametrize(
    ("lines", "id_"), [({}, "deploy-failed"), ({"evidence": ["CUDA out of memory"]}, "oom")], ids=str
)
def test_a_deploy_that_went_back_is_a_note(store: Store, lines: dict[str, Any], id_: str) -> None:
    failure = {"title": "it did not start", "cause": "exit status 70", "remedy": "read on"} | lines
    outcome = {"result": "rolled-back", "release": "linear-2", "serves": "linear-1", "failure": failure}
    recorded = Recorded(txn={"committed": [{"release": "linear-1"}], "outcome": outcome})
    recorded.manifests["linear-2"] = {"settings": {**SETTINGS, "page_size": 64}}
    (finding,) = diagnose(evidence(recorded, store))
    assert (finding.id, finding.severity) == (id_, "note")
    assert "differs from the last good release: page_size 1 → 64" in finding.evidence


def test_heat_and_a_quota(store: Store) -> None:
    hot = Recorded(gpus=[["0", "NVIDIA", "90000", "97887", "99", "93", "300", "900", "0x0000000000000040"]])
    hot.unit = "ActiveState=active\nCPUQuotaPerSecUSec=1s\nnr_periods 100\nnr_throttled 90\n"
    assert ids(hot, store) == ["cpu-limited", "clocks-throttled"]


def test_settings_that_the_engine_changed(store: Store) -> None:
    told = {**expected_server_info(SETTINGS), "mem_fraction_static": 0.83}
    changed = Recorded(engine={"port": 30000, "health": 200, "server_info": told})
    finding = diagnose(evidence(changed, store))[0]
    assert finding.id == "effective-differs"
    assert finding.evidence == ("mem_fraction_static: asked 0.9, runs with 0.83",)


def test_the_hosts_record_is_read(store: Store) -> None:
    values_ = [("a", 440.0), ("b", 450.0), ("c", 445.0), ("d", 1200.0)]
    store.add_marks(
        Mark(f"2026-11-0{i}", "ct200", "linear", "e", release, "start-up time", "", value)
        for i, (release, value) in enumerate(values_, 1)
    )
    assert ids(Recorded(), store) == ["outside-history"]


@pytest.mark.parametrize("text", ["null", "[]", "{", '{"settings": 3}', '{"settings": {}}'])
def test_a_damaged_manifest_is_no_settings(store: Store, text: str) -> None:
    recorded = Recorded()
    recorded.run = lambda argv, **_: (  # type: ignore[method-assign]
        RunResult(ARGV, 0, text.encode(), b"") if "manifest" in argv[2] else Recorded.run(recorded, argv)
    )
    diagnose(evidence(recorded, store))
