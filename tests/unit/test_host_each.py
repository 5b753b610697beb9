"""Many hosts at once: none delays or hides another."""

import threading
import time

import pytest

from kdops.errors import KdopsError, UnreachableError
from kdops.host import each

pytestmark = pytest.mark.unit


class Named:
    def __init__(self, name):
        self.name = name


HOSTS = [Named(name) for name in ("fast", "dead", "broken", "slow")]


def test_a_dead_host_costs_its_deadline_and_nothing_else():
    never = threading.Event()

    def ask(host):
        if host.name == "dead":
            never.wait(60)
        if host.name == "broken":
            raise UnreachableError("broken: refused", cause="c", remedy="r")
        return host.name

    started = time.monotonic()
    fast, dead, broken, slow = each(HOSTS, ask, 0.3)
    assert 0.3 <= time.monotonic() - started < 2
    assert (fast, slow) == ("fast", "slow")
    assert dead.code == 3
    assert "0.3 s" in dead.cause
    assert broken.title == "broken: refused"
    never.set()


def test_they_are_asked_at_once_and_answered_in_order():
    together = threading.Barrier(len(HOSTS), timeout=5)

    def ask(host):
        together.wait()
        return host.name

    assert each(HOSTS, ask, 5) == ["fast", "dead", "broken", "slow"]


def test_a_bug_is_not_taken_for_a_dead_host():
    def ask(host):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        each(HOSTS, ask, 5)


def test_no_hosts():
    assert each([], lambda host: host, 1) == []


def test_an_answer_may_be_false():
    assert each([Named("a")], lambda host: 0, 1) == [0]
    assert not isinstance(each([Named("a")], lambda host: None, 1)[0], KdopsError)
