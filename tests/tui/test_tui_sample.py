"""From what a host says to what the dashboard shows: samples, alarms, ages, order."""

from __future__ import annotations

from dataclasses import replace

import pytest
import session
from hypothesis import given, settings
from hypothesis import strategies as st

from kdops.tui import columns, words
from kdops.tui.history import POINTS, History
from kdops.tui.order import Order, arrange
from kdops.tui.sample import STALE_S, Sample, build, commits_between, failed, waiting

pytestmark = pytest.mark.unit


def look(name: str = "b300-0", t: float = 10.0, before: Sample | None = None, **changes: object) -> Sample:
    document = session.document(name, t, **changes)
    return build(name, session.BEGUN + t, document, before or waiting(name, session.BEGUN), 412.0)


def test_a_running_host():
    sample = look(t=0)
    assert (sample.row.state, sample.row.running, sample.row.tokens_per_second) == ("running", 3, 240.0)
    assert sample.step_time == pytest.approx(4.10 * 3 / 240), "tokens/s = AL / step time, for three streams"
    assert sample.kv_use == pytest.approx(0.4)
    assert sample.commits == session.COMMITS
    assert sample.alarm is None


def test_what_cannot_be_known_is_not_shown():
    sample = look(engine={"port": 30000, "health": 200, "metrics": "sglang:gen_throughput NaN\n"})
    assert (sample.step_time, sample.kv_use, sample.commits) == (None, None, ())
    idle = look(properties=session.properties(0, StatusText="running=0 queued=0 al=4.00"))
    assert idle.step_time is None, "an idle engine has no step time"


def test_a_load_says_how_long_it_still_takes():
    document = session.heard("b300-1", 5.0).document
    sample = build("b300-1", session.BEGUN, document, waiting("b300-1", session.BEGUN), 412.0)
    assert sample.eta == pytest.approx(412 - 100)
    assert columns.state_words(sample) == "weights ~5m"
    assert columns.state_words(replace(sample, eta=-3.0)) == "weights late"
    assert columns.state_words(replace(sample, eta=None)) == "weights"


def test_a_failed_look_keeps_the_old_values_and_they_grow_stale():
    good = look()
    lost = failed("b300-0", good.at + 6, session.dead("b300-0"), good)
    assert (lost.row.state, lost.row.tokens_per_second) == ("unreachable", good.row.tokens_per_second)
    assert lost.age(good.at + 6) == 6 and lost.stale(good.at + 6)
    assert "no answer from 10.0.0.9" in lost.alarm.text
    assert not good.stale(good.at + STALE_S) and good.stale(good.at + STALE_S + 0.1)
    assert waiting("x", 0.0).stale(0.0) and waiting("x", 0.0).age(0.0) is None


def test_a_measured_window_is_a_pause_and_not_stale():
    good = look()
    paused = build("b300-0", good.at + 60, {"paused": True, "time": 1.0}, good)
    assert paused.paused and not paused.stale(good.at + 90)
    assert columns.state_words(paused) == "measuring"
    assert paused.row.tokens_per_second == good.row.tokens_per_second


@pytest.mark.parametrize(
    ("name", "words_of_alarm"),
    [("ct200-0", "GPU 0: software thermal slowdown"), ("ct200-1", "exit status 70")],
)
def test_alarms(name, words_of_alarm):
    sample = build(name, session.BEGUN, session.heard(name, 1.0).document, waiting(name, session.BEGUN))
    assert sample.alarm.level == "critical"
    assert words_of_alarm in sample.alarm.text


def test_a_restart_of_its_own_is_an_alarm_once():
    before = look()
    told = session.properties(11, NRestarts="1")
    again = look(t=11, before=before, properties=told)
    assert again.alarm.text == "restarted by itself (1 times in all)"
    assert look(t=12, before=again, properties=told).alarm is None


def test_a_full_pool_and_a_power_cap():
    full = session.document("b300-0", 1)["engine"]["metrics"].replace("sglang:token_usage", "x")
    engine = {"port": 1, "health": 200, "metrics": full + "sglang:token_usage 0.97\n"}
    assert look(engine=engine).alarm.text == "KV pool 97% full"
    capped = [[*session.document("b", 0)["gpus"][0][:8], "0x04"]]
    assert (look(gpus=capped).alarm.level, look(gpus=capped).alarm.text) == ("warning", "GPU 0: power cap")
    assert look(gpus=[["0", "H200", "", "", "[N/A]", "", "", "", "Not Active"]]).alarm is None


def test_commits_in_between_and_after_a_restart():
    assert commits_between((1, 2), (3, 2, 4)) == (2, 0, 4)
    assert commits_between((5, 5), (1, 0)) == (1, 0)


def test_a_history_has_a_fixed_size_and_gaps():
    history = History()
    sample = look(t=0)
    for t in range(POINTS + 50):
        history.add(replace(sample, at=sample.at + t, seen=sample.at + t))
    history.add(failed("b300-0", sample.at + POINTS + 51, session.dead("b300-0"), sample))
    assert len(history.points) == POINTS
    assert history.points[-1].tokens_per_second is None
    assert history.points[-2].tokens_per_second == 240.0


def test_recent_commits_are_of_the_last_minutes():
    history = History()
    for t in (0.0, 100.0, 700.0):
        history.add(look(t=t))
    old, new = look(t=700.0).commits, look(t=700.0).commits
    assert history.recent_commits() == commits_between(old, new), "the only look in the last five minutes"
    history.add(look(t=800.0))
    assert history.recent_commits() == commits_between(look(t=700.0).commits, look(t=800.0).commits)


def fleet() -> dict[str, Sample]:
    found = {}
    for name in session.FLEET:
        event = session.heard(name, 1.0)
        begin = waiting(name, session.BEGUN)
        found[name] = (
            build(name, event.at, event.document, begin)
            if hasattr(event, "document")
            else failed(name, event.at, event.error, begin)
        )
    return found


def test_order_group_and_filter():
    samples, shown = fleet(), columns.COLUMNS

    def names(**order: object) -> list[str]:
        return [one.host for one in arrange(samples, shown, Order(**order))]

    assert names() == sorted(session.FLEET)
    assert names(column="TOK/S", reverse=True)[-1] == "old-box", "no value comes last either way"
    assert names(pattern="linear") == ["ct200-0"]
    assert names(pattern="RUNNING b300") == ["b300-0"]
    assert names(group="state") == ["ct200-1", "b300-1", "b300-0", "ct200-0", "lab0", "old-box"]
    for column in shown:
        assert set(names(column=column.name)) == set(session.FLEET)


@pytest.mark.parametrize("width", range(80, 260, 5))
def test_the_columns_fit_the_screen(width):
    shown = columns.visible(width)
    assert sum(column.width + 2 for column in shown) + columns.AGE_WIDTH + 2 <= width
    assert {"HOST", "STATE", "TOK/S", "AL", "KV"} <= {column.name for column in shown}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=40)
@given(ANYTHING)
def test_no_document_breaks_a_sample(value):
    document = value if isinstance(value, dict) else {"gpus": value, "engine": value, "properties": value}
    sample = build("x", 1.0, document, waiting("x", 0.0))
    for column in columns.COLUMNS:
        column.cell(sample)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (words.number(None), "-"), (words.number(237.46), "237.5"), (words.number(12345.6), "12,346"),
        (words.number(1234567), "1,235k"), (words.milliseconds(0.0485), "48.5 ms"),
        (words.milliseconds(0.2), "200 ms"), (words.percent(0.5), "50%"), (words.short(59), "59s"),
        (words.short(7200), "2h"),
        (words.bar(0.5, 4), "██  "), (words.bar(1.7, 3), "███"), (words.bar(None, 2), "  "),
        (words.bar(0.03125, 4), "▏   "), (words.age(None), "never"), (words.age(300), "5m"),
    ],
)  # fmt: skip
def test_words(shown, said):
    assert shown == said
