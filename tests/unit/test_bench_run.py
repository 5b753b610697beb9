"""How a run ends in the store; what it does on a host is replaced (tests/lab/test_ab.py does it for real)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kdops.bench import run, stored
from kdops.deploy.progress import Display
from kdops.errors import ExitCode, KdopsError
from kdops.store import Store

pytestmark = pytest.mark.unit


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "m.sqlite")
    made.open_run("r1", "one", "2026-01-01T00:00:00+00:00", {})
    return made


class Untouched:
    """A trial that changed nothing."""

    restored = "nothing was changed on the host"

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Untouched:
        return self

    def __exit__(self, *_: object) -> None: ...

    def serve(self, bundle: object) -> None: ...


def job(*releases: str) -> Any:
    return SimpleNamespace(
        positions=list(enumerate(range(len(releases)))),
        bundles=[SimpleNamespace(unit="u", release=release) for release in releases],
        configs=[None for _ in releases],
        host=None,
        tokens=dict.fromkeys(range(len(releases)), 10),
        name=lambda position: releases[position],
    )


def end(monkeypatch: pytest.MonkeyPatch, store: Store, code: ExitCode) -> KdopsError:
    """Execute one leg whose restore fails with `code`."""

    class Trial(Untouched):
        def __exit__(self, *_: object) -> None:
            raise KdopsError("not seen to serve", cause="because", remedy="look there", code=code)

    monkeypatch.setattr(run, "Trial", Trial)
    monkeypatch.setattr(run, "before_deploy", lambda *_: lambda display: None)
    monkeypatch.setattr(run, "HostConnection", lambda host: contextlib.nullcontext())
    monkeypatch.setattr(run.host_checks, "require_free_gpus", lambda *_: None)
    monkeypatch.setattr(run, "measure", lambda *_: None)
    with pytest.raises(KdopsError) as ended:
        run.execute(job("linear"), "r1", store, None, lambda line: None)  # type: ignore[arg-type]
    return ended.value


def test_ctrl_c_in_the_last_restore_is_an_interrupted_run(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    error = end(monkeypatch, store, ExitCode.INTERRUPTED)
    assert store.run("r1").state == "interrupted" and error.code == ExitCode.INTERRUPTED
    assert error.remedy == "look there; then go on with: kdops ab resume r1"


def test_a_restore_that_fails_is_a_failed_run(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    assert end(monkeypatch, store, ExitCode.ROLLBACK_FAILED).code == ExitCode.ROLLBACK_FAILED
    assert store.run("r1").state == "failed"


@pytest.mark.parametrize("stop", [KdopsError("full", cause="c", remedy="r", code=5), KeyboardInterrupt()])
def test_every_release_is_checked_once_before_the_host_is_touched(
    monkeypatch: pytest.MonkeyPatch, store: Store, stop: BaseException
) -> None:
    asked = []

    def before(host: None, config: Any, bundle: Any) -> Callable[[Display], None]:
        def check(display: Display) -> None:
            asked.append(bundle.release)
            if bundle.release == "ddtree":
                raise stop

        return check

    monkeypatch.setattr(run, "before_deploy", before)
    monkeypatch.setattr(run, "Trial", Untouched)
    monkeypatch.setattr(Untouched, "serve", lambda *_: pytest.fail("a leg began"))
    with pytest.raises(KdopsError) as ended:
        run.execute(job("linear", "linear", "ddtree"), "r1", store, None, lambda line: None)  # type: ignore[arg-type]
    assert sorted(asked) == ["ddtree", "linear"]
    assert ended.value.code == (5 if isinstance(stop, KdopsError) else ExitCode.INTERRUPTED)
    assert store.run("r1").state == ("failed" if isinstance(stop, KdopsError) else "interrupted")


@pytest.mark.parametrize(
    ("ends", "code", "state"),
    [
        (KeyboardInterrupt(), ExitCode.INTERRUPTED, "interrupted"),
        (KdopsError("cut", cause="c", remedy="r", code=ExitCode.UNREACHABLE), ExitCode.UNREACHABLE, "failed"),
    ],
)
def test_a_single_leg_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, store: Store, ends: BaseException, code: ExitCode, state: str
) -> None:
    def measure(*_: Any) -> None:
        raise ends

    monkeypatch.setattr(run, "measure", measure)
    job: Any = SimpleNamespace(host=SimpleNamespace(name="one"))
    with pytest.raises(KdopsError) as ended:
        run.once(job, "r1", store, lambda line: None)
    assert (ended.value.code, store.run("r1").state) == (code, state)


def test_an_incomplete_single_leg_is_measured_again_not_resumed(store: Store) -> None:
    plan = {"arms": [{"name": "linear"}], "order": [0], "reference": False}
    store.open_run("r2", "one", "2026-01-01T00:00:00+00:00", plan)
    with pytest.raises(KdopsError) as ended:
        stored.result(store.run("r2"), store)
    assert ended.value.remedy == "measure again: kdops bench one"
