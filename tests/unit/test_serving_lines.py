"""Log lines and metrics as SGLang writes them, and as it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.serving import log_lines, metrics
from kdops.serving.log_lines import DecodeBatch, PrefillBatch, TreeSteps

pytestmark = pytest.mark.unit

DECODE = (
    "[2026-01-31 10:00:00 TP0] Decode batch, #running-req: 1, #token: 397, token usage: 0.10, "
    "accept len: 2.00, accept rate: 0.33, cuda graph: True, gen throughput (token/s): 237.85, #queue-req: 0"
)
PREFILL = (
    "[2026-01-31 10:00:00] Prefill batch [17], #new-seq: 1, #new-token: 128, #cached-token: 64, "
    "token usage: 0.02, #running-req: 0, #queue-req: 3, #pending-token: 0, "
    "cpu graph: False, input throughput (token/s): 812.40"
)
OLD_TREE = (
    "DDTREE metrics: bs=1 budget=7 avg_actual_nodes=8.00 avg_accepted_drafts=2.00 avg_commit_len=2.00 "
    "avg_accepted_depth=5.00"
)


def test_a_decode_window():
    assert log_lines.parse(DECODE) == DecodeBatch(1, 0, 237.85, 397, 0.10, 2.00, 0.33, True)


def test_a_decode_window_without_speculation_and_with_another_pool():
    line = "Decode batch, #running-req: 4, #full token: 9, full token usage: 0.50, cpu graph: False"
    assert log_lines.parse(line) == DecodeBatch(4, None, None, 9, 0.50, None, None, False)


def test_a_prefill_batch():
    assert log_lines.parse(PREFILL) == PrefillBatch(1, 128, 64, 0, 3, 812.40, False)


def test_old_tree_lines_leave_the_root_out_of_the_budget_and_contradict_themselves():
    found = log_lines.parse(OLD_TREE)
    assert found == TreeSteps(1, 8, 8.0, 2.0, 2.0, 5.0)
    assert not found.consistent


@pytest.mark.parametrize(("includes_root", "rows"), [(True, 33), (False, 34)])
def test_the_dialect_decides_where_the_line_does_not(includes_root, rows):
    line = (
        "DDTREE metrics: bs=2 budget=33 avg_actual_nodes=30.10 avg_accepted_drafts=2.40 avg_commit_len=3.40"
    )
    found = log_lines.parse(line, budget_includes_root=includes_root)
    assert found.rows == rows
    assert found.consistent


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Decode batch",
        "Decode batch, #running-req: nan",
        "DDTREE metrics: bs=x",
        "a Prefill batch of cookies",
    ],
)
def test_what_is_no_event(line):
    assert log_lines.parse(line) is None


@given(
    st.text()
    | st.sampled_from([DECODE, PREFILL, OLD_TREE]).flatmap(
        lambda line: st.builds(
            lambda a, b, junk: line[:a] + junk + line[b:],
            st.integers(0, 150),
            st.integers(0, 150),
            st.text(max_size=5),
        )
    )
)
def test_no_line_breaks_the_parser(line):
    event = log_lines.parse(line)
    if isinstance(event, TreeSteps):
        assert event.consistent in (True, False)


METRICS = """# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",tp_rank="0"} 2.0
sglang:num_running_reqs{engine_type="unified",model_name="m",priority="1",tp_rank="0"} 2.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="m"} 1.0
# TYPE sglang:gen_throughput gauge
sglang:gen_throughput{model_name="m"} 237.5
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{model_name="m"} 3.25
# TYPE sglang:generation_tokens counter
sglang:generation_tokens_total{is_streaming="false",model_name="m"} 100.0
sglang:generation_tokens_total{is_streaming="true",model_name="m"} 20.0
# TYPE sglang:spec_verify_calls counter
sglang:spec_verify_calls_total{model_name="m"} 30.0
"""


def test_metrics_add_series_but_not_a_total_and_its_parts():
    found = metrics.parse(METRICS)
    assert (found.running, found.queued, found.throughput) == (2, 1, 237.5)
    assert (found.generated, found.verify_steps, found.accept_length) == (120, 30, 3.25)


def test_a_torn_answer_counts_up_to_the_tear():
    torn = METRICS[: METRICS.index("3.25")] + "{\n"
    assert metrics.parse(torn).throughput == 237.5


def test_nan_is_no_value():
    assert metrics.parse("sglang:gen_throughput NaN\nsglang:num_running_reqs -1\n") == metrics.EngineMetrics()


@given(
    st.text()
    | st.builds(
        lambda a, junk, b: METRICS[:a] + junk + METRICS[b:],
        st.integers(0, 900),
        st.text(max_size=6),
        st.integers(0, 900),
    )
)
def test_no_text_breaks_the_metrics(text):
    metrics.parse(text)
