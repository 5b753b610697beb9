"""A journal to evidence: formats, ranks, generations, and text of any kind."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdops.diagnose.apply import diagnose
from kdops.diagnose.evidence import Evidence, Journal
from kdops.diagnose.journal import messages, read

pytestmark = pytest.mark.unit

PREFILL = "[2026-01-31 10:00:00 TP0] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, "
TREE = (
    "DDTREE metrics: bs=1 budget=32 avg_actual_nodes=31.20 avg_accepted_drafts=2.10 avg_commit_len=3.10 "
    "avg_accepted_depth=2.10"
)


def decode(tokens: int, speed: float = 100.0, length: float = 2.5, rank: int = 0, running: int = 1) -> str:
    return (
        f"[2026-01-31 10:00:00 TP{rank}] Decode batch, #running-req: {running}, #token: {tokens}, "
        f"token usage: 0.10, accept len: {length:.2f}, accept rate: 0.30, cuda graph: True, "
        f"gen throughput (token/s): {speed:.2f}, #queue-req: 0"
    )


def journal(lines: Sequence[str], end: str = "\n") -> Journal:
    return read([(end.join(lines) + end).encode()])


def test_a_generation_is_its_clean_windows() -> None:
    found = journal([PREFILL, decode(100), decode(200), decode(300), PREFILL, decode(50), decode(150)])
    # the first window after a prefill holds the prefill too
    assert [[w.tokens for w in g] for g in found.generations] == [[200, 300], [150]]
    assert found.generations[0][0].step_time == pytest.approx(2.5 / 100)
    assert found.windows == 5
    assert found.graph_windows == 5


def test_a_prefix_hit_is_known_of_its_windows() -> None:
    hit = PREFILL.replace("#new-token: 64, #cached-token: 0", "#new-token: 8, #cached-token: 900")
    chunk = PREFILL.replace("#new-token: 64", "#new-token: 2000")
    lines = [decode(9), decode(10), PREFILL, decode(100), decode(200), hit, decode(910), decode(950)]
    found = journal([*lines, hit, chunk, decode(3000), decode(3100)])
    assert [[w.hit for w in g] for g in found.generations] == [[None], [False], [True], [False]]


def test_acceptance_after_prefix_hits_is_compared() -> None:
    hit = PREFILL.replace("#new-token: 64, #cached-token: 0", "#new-token: 8, #cached-token: 900")
    cold = [decode(900 + 100 * i, length=4.0) for i in range(12)]
    warm = [decode(900 + 100 * i, length=1.1) for i in range(12)]
    found = diagnose(Evidence(journal=journal([PREFILL, *cold, hit, *warm])))
    assert [finding.id for finding in found] == ["draft-kv-after-prefix-hit"]
    assert "4.00 without, 1.10 after a prefix hit" in found[0].evidence[0]


def test_batches_of_several_requests_are_no_generation() -> None:
    found = journal([decode(100), decode(200), decode(300, running=4), decode(400), decode(500)])
    assert [[w.tokens for w in g] for g in found.generations] == [[200], [400, 500]]


def test_other_ranks_are_not_counted_twice() -> None:
    lines = [decode(100 * i, rank=rank) for i in range(1, 5) for rank in (0, 1, 2, 3)]
    assert journal(lines).windows == 4


def test_journald_json_short_and_plain_lines_are_the_same() -> None:
    lines = [PREFILL, decode(100), decode(200), TREE, "Suppressed 12 messages from kdtree-lab0.service"]
    as_json = [
        json.dumps({"__CURSOR": f"c{i}", "__REALTIME_TIMESTAMP": "1", "MESSAGE": m})
        for i, m in enumerate(lines)
    ]
    as_bytes = [json.dumps({"__CURSOR": "c", "MESSAGE": list(m.encode())}) for m in lines]
    short = [f"Jan 31 10:00:00 lab0 python[12]: {m}" for m in lines]
    plain = journal(lines)
    assert plain.suppressed == 12
    assert plain.tree is not None and plain.tree.rows == 32
    assert journal(as_json) == journal(as_bytes) == journal(short) == plain


def test_colours_change_nothing() -> None:
    assert journal(["\x1b[32m" + decode(100) + "\x1b[0m", decode(200)]) == journal([decode(100), decode(200)])


def test_what_the_start_says_is_kept() -> None:
    found = journal(
        [
            "[2026-01-31 10:00:00] max_total_num_tokens=60000, chunked_prefill_size=8192, "
            "max_prefill_tokens=16384, max_running_requests=16, context_len=160000, available_gpu_mem=9.1 GB",
            "kdtree: ready; imports 9.8 s, weights 402.1 s, kv-cache 1.1 s, graphs 30.0 s, warm-up 7.0 s",
            "Input length (70000 tokens) exceeds the maximum allowed length (59999 tokens).",
        ]
    )
    assert (found.pool, found.context, found.refused) == (60_000, 160_000, 1)
    assert found.starts == (pytest.approx(450.0),)
    # O4: the pool holds less than one request may have, hours before a long one is refused
    assert diagnose(Evidence(journal=found))[0].id == "kv-pool-below-context"


def test_an_endless_line_is_cut() -> None:
    pieces = [b"x" * (1 << 20)] * 8 + [b"\n" + decode(100).encode() + b"\n" + decode(200).encode()]
    assert read(pieces).windows == 2
    assert max(map(len, messages(pieces))) <= 1 << 16


NOISE = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda t: t.encode(errors="surrogatepass")),
    st.sampled_from([decode(10), TREE, PREFILL, "kdtree: ready; x 1..2.3 s", "accepted 3 commit 9"]).flatmap(
        lambda line: st.integers(0, len(line)).map(lambda cut: line[cut:].encode())
    ),
    st.floats().map(
        lambda f: f"Decode batch, #running-req: 1, #token: 5, gen throughput (token/s): {f}".encode()
    ),
    st.just(b'{"__CURSOR": "c", "MESSAGE": null, "__REALTIME_TIMESTAMP": "-1"}'),
)


@given(st.lists(NOISE, max_size=30), st.integers(1, 50))
def test_whatever_is_in_a_journal_does_no_harm(lines: list[bytes], size: int) -> None:
    whole = b"\n".join(lines)
    found = read([whole[i : i + size] for i in range(0, len(whole), size)])
    assert found == read([whole])
    diagnose(Evidence(journal=found))


@given(st.lists(NOISE, max_size=10))
def test_noise_between_lines_hides_none(noise: list[bytes]) -> None:
    harmless = [line for line in noise if b"batch" not in line and b"DDTREE" not in line]
    steps = [decode(100 * i).encode() for i in range(1, 5)]
    mixed = [piece for step in steps for piece in (*harmless, step)]
    found = read([b"\n" + b"\n".join(mixed) + b"\n"])
    assert found.windows == 4
