"""What systemd hears: time while loading moves, the watchdog while the scheduler turns, and nothing when
stuck."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kdtree_engine.page import Phase
from kdtree_engine.serve.watch import Seen, Watch

pytestmark = pytest.mark.unit

SERVING = Seen(Phase.SERVING, turns=1)


def extends(said: tuple[str, ...]) -> bool:
    return any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in said)


def test_loading_gets_time_while_it_computes_or_reads() -> None:
    watch = Watch(0.0, phase_limit=1800)
    assert extends(watch.look(1.0, Seen(Phase.IMPORTS, cpu_seconds=0.9)))
    assert extends(watch.look(2.0, Seen(Phase.WEIGHTS, cpu_seconds=0.9)))
    assert extends(watch.look(3.0, Seen(Phase.WEIGHTS, cpu_seconds=0.9, read_bytes=5_000_000)))
    assert not extends(watch.look(4.0, Seen(Phase.WEIGHTS, cpu_seconds=0.905, read_bytes=5_000_100)))
    assert watch.look(5.0, Seen(Phase.WEIGHTS, cpu_seconds=0.91, read_bytes=5_000_200)) == (
        "STATUS=phase=weights 3 s, nothing moves",
    )


def test_a_phase_over_its_limit_gets_no_more_time() -> None:
    watch = Watch(0.0, phase_limit=10)
    assert extends(watch.look(9.0, Seen(Phase.IMPORTS, cpu_seconds=9)))
    assert not extends(watch.look(11.0, Seen(Phase.IMPORTS, cpu_seconds=11)))


def test_the_watchdog_is_fed_by_turns_and_answers_only() -> None:
    watch = Watch(0.0, phase_limit=1800)
    assert "WATCHDOG=1" in watch.look(1.0, SERVING)
    assert "WATCHDOG=1" not in watch.look(2.0, SERVING)
    assert "WATCHDOG=1" in watch.look(3.0, replace(SERVING, turns=2))
    assert "WATCHDOG=1" not in watch.look(4.0, replace(SERVING, turns=3, answering=False))


def test_status_shows_load_and_the_acceptance_length_of_the_last_steps() -> None:
    watch = Watch(0.0, phase_limit=1800)
    assert watch.look(1.0, SERVING)[0] == "STATUS=running=0 queued=0 al=-"
    busy = replace(SERVING, running=3, queued=1, steps=10, accepted=25)
    assert watch.look(2.0, busy)[0] == "STATUS=running=3 queued=1 al=3.50"
    assert watch.look(3.0, busy)[0] == "STATUS=running=3 queued=1 al=3.50"
    draining = replace(busy, draining="draining 1 request, 92 s left")
    assert watch.look(4.0, draining)[0] == "STATUS=draining 1 request, 92 s left"
