"""One row of `kdops status`."""

import pytest

from kdops.cli.generate import not_serving
from kdops.cli.status_table import table
from kdops.diagnose.failures import classify
from kdops.errors import ExitCode, UnreachableError
from kdops.host.status import EngineState, HostStatus, LastOutcome, OpenTransaction, UnitState, Why
from kdops.observe.row import row
from kdops.text import duration

pytestmark = pytest.mark.unit

METRICS = "sglang:gen_throughput 237.5\nsglang:num_running_reqs 3\nsglang:spec_accept_length 3.25\n"


def status(active="active", text="running=1 queued=0 al=4.38", health="ok", metrics=METRICS, **rest):
    unit = UnitState(
        "kdtree-g.service", "loaded", active, rest.pop("sub", "running"), status_text=text, since=90.0
    )
    return HostStatus("g", unit, release="ddtree-1", engine=EngineState(30000, health, metrics), **rest)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (status(), "running"),
        (status(health="no answer"), "running"),
        (status(health="refused"), "unhealthy"),
        (status(health="http 500"), "unhealthy"),
        (status("activating", "phase=weights 12 s"), "loading"),
        (status("activating", sub="auto-restart"), "restarting"),
        (status("deactivating", "draining 1 request, 92 s left"), "draining"),
        (status("inactive"), "stopped"),
        (status("failed"), "failed"),
        (HostStatus("g", UnitState("u")), "not deployed"),
        (HostStatus("g", UnitState("u", load="bad-setting")), "unit bad-setting"),
        (UnreachableError("g: refused", cause="c", remedy="r"), "unreachable"),
    ],
)
def test_states(found, state):
    assert row("g", found).state == state


def test_a_running_host():
    shown = row("g", status())
    assert (shown.running, shown.tokens_per_second, shown.acceptance_length, shown.al_source) == (
        1, 237.5, 4.38, "engine",
    )  # fmt: skip
    assert "4.38" in table([shown])


@pytest.mark.parametrize("text", ["running=1", "al=nan", "al=0", "al=x", "al="])
def test_without_al_sglang_s_own_value_is_labelled(text):
    shown = row("g", status(text=text))
    assert (shown.acceptance_length, shown.al_source) == (3.25, "SGLang's")
    assert "3.25 (SGLang's)" in table([shown])


def test_without_any_there_is_none():
    shown = row("g", status(text="", metrics=None))
    assert (shown.running, shown.acceptance_length, shown.al_source) == (None, None, None)


def test_while_loading_the_phase_is_shown():
    shown = row("g", status("activating", "phase=weights 12 s"))
    assert (shown.phase, shown.running) == ("weights", None)
    assert "phase=weights 12 s" in table([shown])


def test_drift_a_failed_deploy_and_an_open_one_are_told():
    outcome = LastOutcome(
        "rolled-back", "r2", "r1", "guard", "t", Why("r2 did not start", "no memory", "use less")
    )
    open_now = OpenTransaction("r3", "starting", "ann", "", "t", 12.0)
    text = table([row("g", status(drift=("unit file edited",), outcome=outcome, transaction=open_now))])
    for words in (
        "drift: unit file edited",
        "no memory",
        "use less",
        "serving r1",
        "ann deploys r3",
        "lease 12 s",
    ):
        assert words in text


def test_a_committed_deploy_needs_no_words():
    assert row("g", status(outcome=LastOutcome("committed", "r", "r", "client", "t", None))).notes == ()


def test_what_a_host_says_cannot_act_on_the_terminal():
    assert "\x1b" not in table([row("g", status("activating", "phase=\x1b[2J"))])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200000, "2 d")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


OOM = classify(
    ["Starting kdtree-g.service", "Load weight begin", "torch.OutOfMemoryError: CUDA out of memory. Tried"]
)


def test_a_failed_service_is_named_with_its_class_and_where_it_is_explained():
    shown = row("g", status("failed"), OOM)
    assert shown.failure_class == "oom-loading"
    text = table([shown])
    for words in ("GPU memory ran out while loading", "docs/failures.md#oom-loading", "| torch.OutOfMemory"):
        assert words in text


def test_the_class_of_a_failed_deploy_stands_in_for_its_own_remedy():
    failed = LastOutcome(
        "rolled-back", "r2", "r1", "guard", "t", Why("r2 did not start", "it died", "read it")
    )
    notes = row("g", status(outcome=failed), OOM).notes
    assert [note for note in notes if note.startswith("remedy: ")] == [f"remedy: {OOM.failure_class.remedy}"]
    assert row("g", status(outcome=failed)).notes[-2:] == (
        "remedy: read it",
        "evidence: kdops diagnose g, kdops logs g",
    )


def test_a_deploy_without_its_client_is_the_guards():
    gone = OpenTransaction("r3", "starting", "ann", "", "t", 0.0)
    assert "the guard on the host takes over" in " ".join(row("g", status(transaction=gone)).notes)
    here = OpenTransaction("r3", "starting", "ann", "", "t", 12.0)
    assert "lease 12 s, then the guard takes over" in " ".join(row("g", status(transaction=here)).notes)


@pytest.mark.parametrize(
    ("active", "said", "remedy"),
    [
        ("inactive", "the service is inactive", "kdops start g"),
        ("failed", "the service is failed", "kdops start g"),
        ("activating", "the service is activating", "kdops status g"),
    ],
)
def test_an_engine_that_does_not_serve_generates_nothing(active, said, remedy):
    error = not_serving(status(active))
    assert (error.code, error.title) == (1, "g: the engine does not serve")
    assert said in error.cause
    assert remedy in error.remedy
    assert "kdops deploy g" in not_serving(HostStatus("g", UnitState("u"))).remedy
    unseen = HostStatus("g", UnitState("u", "loaded", "active", "running"), errors={"engine": "no port"})
    assert not_serving(unseen).cause == "its HTTP side was not read: no port"


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ("not-found", "nothing is deployed"),
        ("masked", "kdtree-g.service is masked"),
        ("bad-setting", "kdtree-g.service cannot be loaded: systemd says bad-setting"),
    ],
)
def test_a_unit_that_is_not_loaded_is_told_for_what_it_is(load, said):
    error = not_serving(HostStatus("g", UnitState("kdtree-g.service", load)))
    assert error.cause.startswith(said)
    assert error.remedy.startswith("kdops deploy g")
    assert error.code == ExitCode.REFUSED
